# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""This host's Open vSwitch: its database, and commands to ovs-vswitchd.

Role
    Keep a copy of the tables that the agent reads, set keys of ports, and
    send commands as ``ovs-appctl`` does.
Doors
    :class:`.connection.Ovsdb` and :class:`.vswitchd.Vswitchd`.
Invariants
    Whoever reads never waits for the server; the last contents are kept while
    it is away. A write checks the former value. Every retry has a pause, and
    its cause is in the status.
Tests
    ``nova_vhpc/tests/unit/agent/ovsdb``; with a real server
    ``nova_vhpc/tests/functional/agent/test_ovsdb.py``.
"""
