# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What nova-scheduler loads: hosts a member may use, and those it should.

Role
    Refuse hosts that cannot give what a virtual cluster needs, each with a
    reason; steer members to the hosts of one plan for the whole cluster.
Doors
    :class:`.filters.VirtualClusterFilter` and
    :class:`.weights.VirtualClusterWeigher`, whose paths never change;
    :mod:`.session` is one request, :mod:`.planner` the search.
Invariants
    Requests without ``vhpc:`` extra specs cost microseconds. No host is
    refused for a reason that concerns one member only. Nothing is written to
    Placement. The planner is pure.
Tests
    ``nova_vhpc/tests/unit/scheduler``; real Nova and Placement
    ``nova_vhpc/tests/functional/scheduler``.
"""
