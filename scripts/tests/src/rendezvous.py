# SPDX-License-Identifier: GPL-2.0
"""Shared by the tests of rendezvous through pyverbs: devices, queue pairs and time limits."""

import errno
import os
import random
import select
import signal
import sys
import time

from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

# 4.096 us * 2^19 * (7 + 1) retries: 17 s, also where the machine is slow.
PATIENT = 19
# No more than the module's parameter.
HASTY = 14
FACTOR = int(os.environ.get("RSIW_TIME_FACTOR", "1"))
SIZE = 4096

RESET, INIT, RTR, RTS = e.IBV_QPS_RESET, e.IBV_QPS_INIT, e.IBV_QPS_RTR, e.IBV_QPS_RTS
SQD, SQE, ERR = e.IBV_QPS_SQD, e.IBV_QPS_SQE, e.IBV_QPS_ERR
NAMES = {RESET: "RESET", INIT: "INIT", RTR: "RTR", RTS: "RTS", SQD: "SQD", SQE: "SQE", ERR: "ERR"}

RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
# Attributes of each step, as ibv_rc_pingpong gives them.
TO_INIT = e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_ACCESS_FLAGS
TO_RTR = (
    e.IBV_QP_STATE | e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN
    | e.IBV_QP_RQ_PSN | e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER
)
TO_RTS = (
    e.IBV_QP_STATE | e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY
    | e.IBV_QP_SQ_PSN | e.IBV_QP_MAX_QP_RD_ATOMIC
)


class Failure(Exception):
    """A check has failed."""


def check(condition, what):
    if not condition:
        raise Failure(what)


def wait_for(seconds, what, condition):
    """Polls until the condition holds."""
    end = time.monotonic() + seconds * FACTOR
    while not condition():
        check(time.monotonic() < end, f"after {seconds * FACTOR} s still not: {what}")
        time.sleep(0.005)


def name(state):
    return NAMES.get(state, str(state))


class Device:
    """A device, with a protection domain and its asynchronous events."""

    def __init__(self, device="r0"):
        before = self.event_files()
        self.context = Context(name=device)
        fresh = [fd for fd in self.event_files() if fd not in before]
        check(len(fresh) == 1, f"the context has {len(fresh)} files for events")
        self.poll = select.poll()
        self.poll.register(fresh[0], select.POLLIN)
        self.pd = PD(self.context)
        self.seen = []

    @staticmethod
    def event_files():
        found = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                if "infinibandevent" in os.readlink(f"/proc/self/fd/{fd}"):
                    found.append(int(fd))
            except FileNotFoundError:
                pass
        return found

    def events(self):
        """All events up to now, by their types."""
        while self.poll.poll(0):
            event = self.context.get_async_event()
            self.seen.append(event.event_type)
            event.ack()
        return self.seen

    def fatal(self):
        """Waits for IBV_EVENT_QP_FATAL."""
        wait_for(10, "IBV_EVENT_QP_FATAL", lambda: e.IBV_EVENT_QP_FATAL in self.events())
        self.seen.clear()

    def gid(self, index):
        return self.context.query_gid(1, index)

    def close(self):
        self.events()
        self.context.close()


class End:
    """A queue pair in RESET, with its completion queue, memory and attributes."""

    def __init__(self, device, depth=16, gid=1, ird=4, ord=4, shared=False):
        self.device = device
        self.gid_index = gid
        self.gid = device.gid(gid) if gid is not None else None
        self.psn = random.getrandbits(24)
        self.ird, self.ord = ird, ord
        self.cq = CQ(device.context, 4 * depth)
        self.mr = MR(device.pd, SIZE, RIGHTS)
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=1, max_recv_sge=1)
        self.srq = None
        if shared:
            self.srq = SRQ(device.pd, SrqInitAttr(SrqAttr(max_wr=depth, max_sge=1)))
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, srq=self.srq, cap=cap,
                          sq_sig_all=1)
        self.qp = QP(device.pd, init)
        self.done = []
        self.posted = 0

    @property
    def number(self):
        return self.qp.qp_num

    def state(self):
        return self.query().qp_state

    def query(self):
        attr, _ = self.qp.query(e.IBV_QP_STATE)
        return attr

    def init_attr(self, rights=RIGHTS):
        attr = QPAttr(qp_state=INIT, port_num=1)
        attr.pkey_index = 0
        attr.qp_access_flags = rights
        return attr

    def rtr_attr(self, peer):
        """peer: anything with number, psn and gid."""
        attr = QPAttr(qp_state=RTR, port_num=1)
        if peer.gid is None:
            attr.ah_attr = AHAttr(port_num=1, is_global=0)
        else:
            route = GlobalRoute(dgid=peer.gid, sgid_index=self.gid_index, hop_limit=1)
            attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        attr.path_mtu = e.IBV_MTU_1024
        attr.dest_qp_num = peer.number
        attr.rq_psn = peer.psn
        attr.max_dest_rd_atomic = self.ird
        attr.min_rnr_timer = 12
        return attr

    def rts_attr(self, timeout=PATIENT, retries=7):
        attr = QPAttr(qp_state=RTS, port_num=1)
        attr.timeout = timeout
        attr.retry_cnt = retries
        attr.rnr_retry = 7
        attr.sq_psn = self.psn
        attr.max_rd_atomic = self.ord
        return attr

    def to_init(self):
        self.qp.modify(self.init_attr(), TO_INIT)

    def to_rtr(self, peer):
        self.qp.modify(self.rtr_attr(peer), TO_RTR)

    def to_rts(self, timeout=PATIENT, retries=7):
        self.qp.modify(self.rts_attr(timeout, retries), TO_RTS)

    def to(self, state):
        self.qp.modify(QPAttr(qp_state=state), e.IBV_QP_STATE)

    def connect(self, peer, timeout=PATIENT, retries=7):
        """From INIT to RTS."""
        self.to_rtr(peer)
        self.to_rts(timeout, retries)

    def refuses(self, what, attr, mask, codes=(errno.EINVAL,)):
        """The change is refused, and changes nothing."""
        before = snapshot(self.query())
        try:
            self.qp.modify(attr, mask)
        except PyverbsRDMAError as error:
            check(error.error_code in codes, f"{what}: errno {error.error_code} ({error})")
        else:
            raise Failure(f"{what}: was accepted")
        after = snapshot(self.query())
        check(before == after, f"{what}: refused, but changed {before} to {after}")

    def recv(self, n=1):
        for _ in range(n):
            sge = SGE(self.mr.buf, SIZE, self.mr.lkey)
            (self.srq or self.qp).post_recv(RecvWR(wr_id=1, sg=[sge], num_sge=1))

    def send(self, text=b"hello"):
        self.posted += 1
        self.mr.write(text, len(text))
        sge = SGE(self.mr.buf, len(text), self.mr.lkey)
        self.qp.post_send(SendWR(wr_id=2, opcode=e.IBV_WR_SEND, sg=[sge], num_sge=1,
                                 send_flags=e.IBV_SEND_SIGNALED))

    def rdma(self, opcode, peer, length=64, local=0, remote=0):
        sge = SGE(self.mr.buf + local, length, self.mr.lkey)
        wr = SendWR(wr_id=3, opcode=opcode, sg=[sge], num_sge=1,
                    send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(peer.mr.rkey, peer.mr.buf + remote)
        self.qp.post_send(wr)

    def completions(self):
        """All completions up to now, as (name, status)."""
        while True:
            n, wcs = self.cq.poll(16)
            self.done += [(wc.wr_id, wc.status) for wc in wcs]
            if n == 0:
                return self.done

    def expect(self, *wanted, seconds=15):
        """Waits for as many completions, which must be these, in this order within a queue."""
        wait_for(seconds, f"{len(wanted)} completions, there are {self.done}",
                 lambda: len(self.completions()) >= len(wanted))
        check(sorted(self.done) == sorted(wanted), f"completions {self.done} instead of {wanted}")
        self.done = []

    def fails(self, seconds=15):
        """Waits for the error state."""
        wait_for(seconds, "the error state", lambda: self.state() == ERR)

    def close(self):
        self.qp.close()
        if self.srq:
            self.srq.close()
        self.mr.close()
        self.cq.close()


class Peer:
    """The attributes of one end that the other one needs."""

    def __init__(self, end, number=None, psn=None):
        self.number = number if number is not None else end.number
        self.psn = psn if psn is not None else end.psn
        self.gid = end.gid


GOOD, FLUSHED = e.IBV_WC_SUCCESS, e.IBV_WC_WR_FLUSH_ERR
RECV, SEND, RDMA = 1, 2, 3


def snapshot(attr):
    """The attributes that a refused change leaves unchanged."""
    fields = (
        "qp_state", "qp_access_flags", "dest_qp_num", "rq_psn", "sq_psn", "path_mtu",
        "max_rd_atomic", "max_dest_rd_atomic", "timeout", "retry_cnt", "rnr_retry",
        "min_rnr_timer", "port_num",
    )
    values = tuple(getattr(attr, field) for field in fields)
    return values + (str(attr.ah_attr),)


def talk(a, b, rounds=3):
    """Both ends send and receive."""
    for i in range(rounds):
        for one, other in ((a, b), (b, a)):
            text = b"%06d %06d" % (one.number % 1000000, i)
            other.recv()
            one.send(text)
            one.expect((SEND, GOOD))
            other.expect((RECV, GOOD))
            got = other.mr.read(len(text), 0)
            check(got == text, f"{got!r} arrived instead of {text!r}")


def pair(device, **options):
    """Two ends in INIT."""
    a, b = End(device, **options), End(device, **options)
    a.to_init()
    b.to_init()
    return a, b


def connected(device, rounds=1, gid=1, **options):
    """Two ends that have connected, with options of both, and exchanged messages."""
    a, b = pair(device, gid=gid)
    a.connect(b, **options)
    b.connect(a, **options)
    talk(a, b, rounds)
    return a, b


def smaller_first(a, b):
    """The initiator first."""
    key = lambda end: (bytes.fromhex(str(end.gid).replace(":", "")), end.number)
    return (a, b) if key(a) < key(b) else (b, a)


def run(cases, seconds):
    """Runs functions with a fresh device and a time limit for each."""
    def late(*_):
        raise Failure(f"not finished after {seconds * FACTOR} s")

    signal.signal(signal.SIGALRM, late)
    random.seed(20261121)
    wanted = sys.argv[1:]
    for case in cases:
        if wanted and case.__name__ not in wanted:
            continue
        begun = time.monotonic()
        signal.alarm(seconds * FACTOR)
        device = Device()
        try:
            case(device)
        except (Failure, PyverbsError) as error:
            print(f"FAIL: {case.__name__}: {error}", flush=True)
            sys.exit(1)
        device.close()
        signal.alarm(0)
        print(f"ok: {case.__doc__} ({time.monotonic() - begun:.1f} s)", flush=True)
