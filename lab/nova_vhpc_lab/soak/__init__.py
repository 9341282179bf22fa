# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Faults and odd values at random, in seeded rounds.

Role
    Look for what nobody thought of: random documents for each reader, faults
    of guests, libvirt, the broker and the agent.
Doors
    ``tools/soak.sh``; :mod:`.fuzzer` for values, :mod:`.chaos` for faults.
Invariants
    A seed repeats a round. Nova refuses to run with native threads if
    eventlet is loaded, so eventlet is forbidden here, before the first test
    module is imported.
Tests
    ``lab/nova_vhpc_lab/tests``: a part of each seed, and ``tools/nightly.sh``.
"""

import os

os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'

from nova import monkey_patch

monkey_patch.patch()
