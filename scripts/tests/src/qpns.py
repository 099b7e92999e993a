# SPDX-License-Identifier: GPL-2.0
"""The numbers of queue pairs: unique on the host, and not used again soon."""

from rendezvous import *

# Numbers are allocated cyclically from all numbers of 24 bits but 0, 1 and the last.
FIRST, CIRCLE = 2, (1 << 24) - 3


class Cheap:
    """A queue pair that only has a number."""

    def __init__(self, device, cq):
        cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(device.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))
        self.number = self.qp.qp_num

    def close(self):
        self.qp.close()


def in_a_circle(device):
    """QPNs have 24 bits, and no other device and no later queue pair gets the same one"""
    devices = [device, Device("r1")]
    queues = [CQ(each.context, 4) for each in devices]
    kept, last = [], None
    for i in range(600):
        one = Cheap(devices[i % 2], queues[i % 2])
        check(FIRST <= one.number < FIRST + CIRCLE, f"the number {one.number:#x}")
        if last is not None:
            step = (one.number - last) % CIRCLE
            check(0 < step < 1000, f"{one.number:#x} after {last:#x}: not forward in the circle")
        last = one.number
        # Some queue pairs are kept, most are destroyed at once.
        if i % 6 < 2:
            kept.append(one)
        else:
            one.close()
    check(len({one.number for one in kept}) == len(kept), "two devices have the same number")
    for one in kept:
        one.close()
    for cq in queues:
        cq.close()
    devices[1].close()


def successors(device):
    """a peer of a destroyed queue pair connects to none of the later ones"""
    a, b = smaller_first(*pair(device))
    gone = Peer(b)
    b.close()
    # The queue pairs differ in the number only: all have the same peer and the same PSNs.
    after = [End(device) for _ in range(20)]
    for end in after:
        check(end.number != gone.number, "a number was used again")
        end.psn = gone.psn
        end.to_init()
        end.recv()
        end.to_rtr(a)
    a.connect(gone, timeout=HASTY)
    a.send(b"for the one that is gone")
    a.fails()
    a.expect((SEND, FLUSHED))
    for end in after:
        check(end.state() == RTR, f"a successor is {name(end.state())}")
        check(end.completions() == [], "a successor received")
        end.close()
    a.close()


if __name__ == "__main__":
    # The first number after the module was loaded.
    device = Device()
    one = Cheap(device, CQ(device.context, 4))
    print(one.number)
