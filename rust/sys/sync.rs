// SPDX-License-Identifier: GPL-2.0

//! Execution contexts, locks, timers, work queues, and tables for RCU readers.

pub(crate) mod context;
pub(crate) mod lock;
pub(crate) mod table;
pub(crate) mod timer;
pub(crate) mod work;
