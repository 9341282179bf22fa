# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Real Open vSwitch and OVN on "hosts" that are network namespaces.

Role
    Show which uplink a guest's frames really take.
Doors
    :class:`.lab.Lab` has the hosts, :mod:`.frames` counts frames at a
    switch's ports.
Invariants
    Programs run from a directory of their own, with datapaths in user space;
    the machine's own Open vSwitch is not touched.
Tests
    ``nova_vhpc/tests/functional/agent`` and ``topology``.
"""
