/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of rsiw: /sys/kernel/tracing/events/rsiw/.
 *
 * The events report rare changes of a connection. Events of each FPDU are only counted.
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

/*
 * An event of a connection or its set-up. The addresses are IPv6, or IPv4 mapped. On failure error
 * is a negative error number. An unknown port or address is 0.
 */
DECLARE_EVENT_CLASS(rsiw_connection,
	TP_PROTO(u32 qpn, const u8 *local, u16 local_port, const u8 *remote, u16 remote_port,
		 s32 error),
	TP_ARGS(qpn, local, local_port, remote, remote_port, error),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(s32, error)
		__array(u8, local, 16)
		__array(u8, remote, 16)
		__field(u16, local_port)
		__field(u16, remote_port)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->error = error;
		memcpy(__entry->local, local, 16);
		memcpy(__entry->remote, remote, 16);
		__entry->local_port = local_port;
		__entry->remote_port = remote_port;
	),
	TP_printk("qpn=%u local=[%pI6c]:%u remote=[%pI6c]:%u error=%d", __entry->qpn,
		  __entry->local, __entry->local_port, __entry->remote, __entry->remote_port,
		  __entry->error)
);

/* An attempt of this end to connect by rdma_cm or rendezvous ended: error 0, connected. */
DEFINE_EVENT(rsiw_connection, rsiw_connect,
	TP_PROTO(u32 qpn, const u8 *local, u16 local_port, const u8 *remote, u16 remote_port,
		 s32 error),
	TP_ARGS(qpn, local, local_port, remote, remote_port, error)
);

/* A connection request that this end accepted has led to a connection, or failed. */
DEFINE_EVENT(rsiw_connection, rsiw_accept,
	TP_PROTO(u32 qpn, const u8 *local, u16 local_port, const u8 *remote, u16 remote_port,
		 s32 error),
	TP_ARGS(qpn, local, local_port, remote, remote_port, error)
);

/* This end refused a connection request: the user (error 0), or the driver because of error. */
DEFINE_EVENT(rsiw_connection, rsiw_reject,
	TP_PROTO(u32 qpn, const u8 *local, u16 local_port, const u8 *remote, u16 remote_port,
		 s32 error),
	TP_ARGS(qpn, local, local_port, remote, remote_port, error)
);

/* A stream ended; error is TCP's negative error number for tcp_error, or 0. */
TRACE_EVENT(rsiw_stream_end,
	TP_PROTO(u32 qpn, u32 reason, s32 error),
	TP_ARGS(qpn, reason, error),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, reason)
		__field(s32, error)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->reason = reason;
		__entry->error = error;
	),
	TP_printk("qpn=%u reason=%s error=%d", __entry->qpn,
		  __print_symbolic(__entry->reason,
				   { 0, "peer_closed" }, { 1, "peer_reset" },
				   { 2, "terminate_received" }, { 3, "terminate_sent" },
				   { 4, "local_close" }, { 5, "tcp_error" }),
		  __entry->error)
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
