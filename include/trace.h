/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of rsiw: /sys/kernel/tracing/events/rsiw/.
 *
 * They are for the rare events of a connection's life; what happens per FPDU is counted.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rsiw

#if !defined(_RSIW_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _RSIW_TRACE_H

#include <linux/tracepoint.h>

/* A queue pair changed its state; the numbers are those of enum ib_qp_state. */
TRACE_EVENT(rsiw_qp_state,
	TP_PROTO(u32 qpn, u32 from, u32 to),
	TP_ARGS(qpn, from, to),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, from)
		__field(u32, to)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk("qpn=%u from=%u to=%u", __entry->qpn, __entry->from, __entry->to)
);

/* A Terminate message was sent (or received): layer, error type and code as on the wire. */
TRACE_EVENT(rsiw_terminate,
	TP_PROTO(u32 qpn, bool sent, u32 code),
	TP_ARGS(qpn, sent, code),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(bool, sent)
		__field(u32, code)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->sent = sent;
		__entry->code = code;
	),
	TP_printk("qpn=%u %s code=%#06x", __entry->qpn,
		  __entry->sent ? "sent" : "received", __entry->code)
);

/* rdma_listen() failed; with -EADDRINUSE another TCP socket has the port. */
TRACE_EVENT(rsiw_listen_failed,
	TP_PROTO(u32 ifindex, u32 port, s32 error),
	TP_ARGS(ifindex, port, error),
	TP_STRUCT__entry(
		__field(u32, ifindex)
		__field(u32, port)
		__field(s32, error)
	),
	TP_fast_assign(
		__entry->ifindex = ifindex;
		__entry->port = port;
		__entry->error = error;
	),
	TP_printk("ifindex=%u port=%u error=%d%s", __entry->ifindex, __entry->port, __entry->error,
		  __entry->error == -EADDRINUSE ? " (a TCP socket has the port)" : "")
);

#endif /* _RSIW_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
