# SPDX-License-Identifier: GPL-2.0
"""The states of queue pairs that connect by rendezvous: every transition, valid and invalid, and the
queries at each step. Runs the checks of lives.py, qpns.py and silence.py, too."""

import itertools

from rendezvous import *
from lives import *
from qpns import in_a_circle, successors
from silence import ports, silence

REACHABLE = (RESET, INIT, RTR, RTS, ERR)
# As in InfiniBand. SQD is tested by itself: it leads on to ERR.
LEGAL = {
    RESET: (RESET, INIT, ERR),
    INIT: (RESET, INIT, RTR, ERR),
    RTR: (RESET, RTS, ERR),
    RTS: (RESET, RTS, SQD, ERR),
    ERR: (RESET, ERR),
}


def change(end, peer, to, now):
    """The attributes that an owner gives for a transition."""
    if to == INIT:
        return end.init_attr(), TO_INIT
    if to == RTR:
        return end.rtr_attr(peer), TO_RTR
    if to == RTS and now != RTS:
        return end.rts_attr(), TO_RTS
    return QPAttr(qp_state=to), e.IBV_QP_STATE


def bring(end, peer, state):
    """Brings the queue pair from RESET to `state`."""
    if state == RESET:
        end.to(RESET)
    if state in (INIT, RTR, RTS):
        end.to_init()
    if state in (RTR, RTS):
        end.to_rtr(peer)
    if state == RTS:
        end.to_rts()
    if state == ERR:
        end.to(ERR)
    check(end.state() == state, f"{name(end.state())} instead of {name(state)}")


def every_transition(device):
    """every transition that there is, and EINVAL for every one that there is not"""
    for now, to in itertools.product(REACHABLE, (RESET, INIT, RTR, RTS, SQD, SQE, ERR)):
        end, peer = End(device), End(device)
        bring(end, peer, now)
        attr, mask = change(end, peer, to, now)
        what = f"{name(now)} to {name(to)}"
        if to in LEGAL[now]:
            end.qp.modify(attr, mask)
            # Without a connection nothing is left to be drained.
            result = ERR if to == SQD else to
            check(end.state() == result, f"{what}: is {name(end.state())}")
        else:
            end.refuses(what, attr, mask)
        end.close()
        peer.close()


def every_transition_connected(device):
    """the same with a connection"""
    for to in (RESET, INIT, RTR, RTS, SQD, SQE, ERR):
        a, b = connected(device)
        attr, mask = change(a, b, to, RTS)
        if to in LEGAL[RTS]:
            a.qp.modify(attr, mask)
            if to == SQD:
                a.fails()
            else:
                check(a.state() == to, f"RTS to {name(to)}: is {name(a.state())}")
        else:
            a.refuses(f"RTS to {name(to)}", attr, mask)
            talk(a, b, 1)
        a.close()
        b.close()


def bits(mask):
    return [1 << n for n in range(32) if mask & (1 << n)]


def every_attribute(device):
    """EINVAL for every attribute that is missing, not wanted or out of range"""
    a, b = pair(device)

    def wrong(what, to, edit=lambda attr: None, mask=None, codes=(errno.EINVAL,)):
        attr = a.rtr_attr(b) if to == RTR else a.rts_attr()
        edit(attr)
        a.refuses(what, attr, mask or (TO_RTR if to == RTR else TO_RTS), codes)

    def put(field, value):
        return lambda attr: setattr(attr, field, value)

    def route(dgid=None, index=1):
        gr = GlobalRoute(dgid=GID(dgid) if dgid else b.gid, sgid_index=index, hop_limit=1)
        return put("ah_attr", AHAttr(port_num=1, is_global=1, gr=gr))

    for bit in bits(TO_RTR & ~e.IBV_QP_STATE):
        wrong(f"RTR without attribute {bit:#x}", RTR, mask=TO_RTR & ~bit)
    for bit in (e.IBV_QP_PORT, e.IBV_QP_SQ_PSN, e.IBV_QP_TIMEOUT, e.IBV_QP_QKEY, e.IBV_QP_CAP):
        wrong(f"RTR with attribute {bit:#x}", RTR, mask=TO_RTR | bit)
    wrong("RTR with a number of 25 bits", RTR, put("dest_qp_num", 1 << 24))
    wrong("RTR with a PSN of 25 bits", RTR, put("rq_psn", 1 << 24))
    wrong("RTR with 129 Reads", RTR, put("max_dest_rd_atomic", 129))
    wrong("RTR with an RNR timer of 32", RTR, put("min_rnr_timer", 32))
    wrong("RTR with MTU 0", RTR, put("path_mtu", 0))
    wrong("RTR with MTU 6", RTR, put("path_mtu", 6))
    none = (errno.EINVAL, errno.ENODATA)
    wrong("RTR from an empty GID", RTR, route(index=31), codes=none)
    wrong("RTR from a GID out of the table", RTR, route(index=200), codes=none)
    zero = "0000:0000:0000:0000:0000:0000:0000:0000"
    mapped = "0000:0000:0000:0000:0000:ffff:"
    for gid in (zero, mapped + "0000:0000", mapped + "e000:0001", mapped + "ffff:ffff",
                "ff02:0000:0000:0000:0000:0000:0000:0001"):
        wrong(f"RTR to {gid}", RTR, route(gid))
    a.to_rtr(b)
    for bit in bits(TO_RTS & ~e.IBV_QP_STATE):
        wrong(f"RTS without attribute {bit:#x}", RTS, mask=TO_RTS & ~bit)
    for bit in (e.IBV_QP_PORT, e.IBV_QP_RQ_PSN, e.IBV_QP_DEST_QPN, e.IBV_QP_QKEY, e.IBV_QP_AV):
        wrong(f"RTS with attribute {bit:#x}", RTS, mask=TO_RTS | bit, codes=none)
    wrong("RTS with a PSN of 25 bits", RTS, put("sq_psn", 1 << 24))
    wrong("RTS with 129 Reads", RTS, put("max_rd_atomic", 129))
    wrong("RTS with a time-out of 32", RTS, put("timeout", 32))
    wrong("RTS with 8 retries", RTS, put("retry_cnt", 8))
    wrong("RTS with 8 RNR retries", RTS, put("rnr_retry", 8))
    wrong("RTS from a state it is not in", RTS, put("cur_qp_state", INIT),
          TO_RTS | e.IBV_QP_CUR_STATE)
    # After all refusals the queue pair still connects.
    a.to_rts()
    b.connect(a)
    talk(a, b, 1)
    a.close()
    b.close()


def queries(device):
    """what query_qp tells at each step"""
    a, b = End(device), End(device)
    b.to_init()

    def told(what, **wanted):
        attr = a.query()
        for field, value in wanted.items():
            got = getattr(attr, field)
            check(got == value, f"{what}: {field} is {got} and not {value}")

    # The idle state of RNICs, which rdma-core's own tests expect.
    told("new", qp_state=INIT, cur_qp_state=INIT)
    a.to(RESET)
    told("RESET", qp_state=RESET, cur_qp_state=RESET)
    a.to_init()
    told("INIT", qp_state=INIT, qp_access_flags=RIGHTS, port_num=1, pkey_index=0)
    a.to_rtr(b)
    peer = dict(dest_qp_num=b.number, rq_psn=b.psn, max_dest_rd_atomic=4, min_rnr_timer=12,
                path_mtu=e.IBV_MTU_1024)
    told("RTR", qp_state=RTR, **peer)
    ah = a.query().ah_attr
    check(str(ah.dgid) == str(b.gid), f"RTR: the route leads to {ah.dgid}")
    check(ah.is_global and ah.sgid_index == 1, "RTR: the route does not begin at GID 1")
    a.to_rts()
    own = dict(sq_psn=a.psn, timeout=PATIENT, retry_cnt=7, rnr_retry=7, max_rd_atomic=4)
    told("RTS", qp_state=RTS, **peer, **own)
    b.connect(a)
    talk(a, b, 1)
    told("connected", qp_state=RTS, **peer, **own)
    a.to(ERR)
    told("ERR", qp_state=ERR)
    a.to(RESET)
    told("RESET again", qp_state=RESET, dest_qp_num=0)
    a.close()
    b.close()


def last_receive(device):
    """of the last receive of a shared queue is told once, unless the owner asks for RESET"""
    last = e.IBV_EVENT_QP_LAST_WQE_REACHED
    for way, wanted in (((RESET,), 0), ((ERR,), 1), ((ERR, RESET), 1)):
        a, b = End(device, shared=True), End(device)
        a.to_init()
        b.to_init()
        a.connect(b)
        b.connect(a)
        talk(a, b, 1)
        for state in way:
            a.to(state)
            if state == ERR:
                wait_for(10, "IBV_EVENT_QP_LAST_WQE_REACHED", lambda: last in device.events())
        # A second event would come within this time.
        time.sleep(0.3 * FACTOR)
        told = device.events().count(last)
        check(told == wanted, f"to {' and '.join(map(name, way))}: told {told} times")
        device.seen.clear()
        a.close()
        b.close()


def back_from_init(device):
    """RESET drops the requests posted in INIT, and the attributes"""
    a, b = pair(device)
    for life in range(3):
        a.recv()
        a.to(RESET)
        a.expect((RECV, FLUSHED))
        check(a.query().qp_access_flags == 0, "the peer's rights of the former life are left")
        a.to_init()
        if life == 1:
            # Without posted requests RESET does not wait.
            a.to(RESET)
            a.to_init()
    a.qp.post_recv(RecvWR(wr_id=7, sg=[SGE(a.mr.buf + 1000, 64, a.mr.lkey)], num_sge=1))
    a.connect(b)
    b.connect(a)
    b.send(b"after")
    b.expect((SEND, GOOD))
    a.expect((7, GOOD))
    check(a.mr.read(5, 1000) == b"after", "it arrived elsewhere")
    a.close()
    b.close()


def rights(device):
    """the peer may do what the queue pair allows, whatever a region does"""
    write, read = e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_READ
    other = Device()
    for allowed, opcode, good in ((write, e.IBV_WR_RDMA_WRITE, True), (read, e.IBV_WR_RDMA_READ, True),
                                  (read, e.IBV_WR_RDMA_WRITE, False), (write, e.IBV_WR_RDMA_READ, False)):
        a, b = End(other), End(device)
        a.to_init()
        b.qp.modify(b.init_attr(e.IBV_ACCESS_LOCAL_WRITE | allowed), TO_INIT)
        b.mr.write(b"kept", 4, 1000)
        a.mr.write(b"mine", 4, 1000)
        a.connect(b)
        b.connect(a)
        a.rdma(opcode, b, 4, 1000, 1000)
        ours, theirs = (b"kept", b"kept") if opcode == e.IBV_WR_RDMA_READ else (b"mine", b"mine")
        if good:
            a.expect((RDMA, GOOD))
            talk(a, b, 1)
        else:
            wait_for(10, "IBV_EVENT_QP_ACCESS_ERR", lambda: e.IBV_EVENT_QP_ACCESS_ERR in device.events())
            a.fails()
            b.fails()
            ours, theirs = b"mine", b"kept"
        check(a.mr.read(4, 1000) == ours and b.mr.read(4, 1000) == theirs, "memory is not what it should be")
        device.seen.clear()
        a.close()
        b.close()
    other.close()


def violated(device):
    """a protection error is reported once, at the responder and at the requester"""
    access, fatal = e.IBV_EVENT_QP_ACCESS_ERR, e.IBV_EVENT_QP_FATAL
    other = Device()
    for a, b in ((End(other), End(device)), [End(device)] * 2):
        for end in {a, b}:
            end.to_init()
            end.recv()
        a.connect(b)
        if a is not b:
            b.connect(a)
        a.rdma(e.IBV_WR_RDMA_WRITE, b, 64, 0, SIZE)
        for end in {a, b}:
            end.fails()
            wait_for(10, "its receive comes back", lambda: (RECV, FLUSHED) in end.completions())
        wait_for(10, "IBV_EVENT_QP_ACCESS_ERR", lambda: access in device.events())
        if a is not b:
            wait_for(10, "IBV_EVENT_QP_FATAL", lambda: fatal in other.events())
            check(other.seen == [fatal], f"the requester is told {other.seen}")
            check(device.events() == [access], f"the responder is told {device.seen}")
        device.seen.clear()
        for end in {a, b}:
            end.close()
    other.close()


if __name__ == "__main__":
    run((every_transition, every_transition_connected, every_attribute, queries, every_order,
         early_work, one_way, addresses, itself, wrong_psn, nobody, retries, for_ever, silence, ports,
         in_a_circle, successors, again, graceful, noticed, last_receive, rights, violated, back_from_init,
         deaths, any_moment, many), 90)
