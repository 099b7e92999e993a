#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The wire peer: sends valid and invalid MPA, DDP and RDMAP over plain TCP to the
module under test, and checks the exact answers. Each case names the requirements
that it checks. Arguments pick cases by name or requirement; none = all."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

# Importing a file registers its cases.
import cases_startup  # noqa: E402,F401
import cases_receive  # noqa: E402,F401
import cases_late  # noqa: E402,F401
import cases_memory  # noqa: E402,F401
import cases_active  # noqa: E402,F401
import cases_silence  # noqa: E402,F401
import cases_ending  # noqa: E402,F401
import cases_cut  # noqa: E402,F401
import harness  # noqa: E402

sys.exit(1 if harness.run(sys.argv[1:]) else 0)
