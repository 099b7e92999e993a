// SPDX-License-Identifier: GPL-2.0
/* The functions of the trace events of trace.h, callable from Rust. */
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"
