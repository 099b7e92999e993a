# SPDX-License-Identifier: GPL-2.0
"""A queue pair that waits for an initiator, so that the port of rendezvous is open.

usage: responder.py DEVICE      says "waits", and stays until it is killed
"""

import signal
import sys

from rendezvous import Device, pair, smaller_first

device = Device(sys.argv[1])
initiator, responder = smaller_first(*pair(device))
responder.to_rtr(initiator)
print("waits", flush=True)
signal.pause()
