# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Filter and weigher that nova-scheduler loads.

Role
    Keep the hosts that can serve a member of a virtual cluster, plan the whole
    cluster at once, and steer each member along the plan.
Doors
    :class:`.filters.VirtualClusterFilter` and
    :class:`.weights.VirtualClusterWeigher`; Nova calls both for each member.
    Below them: :mod:`.session` is one request, :mod:`.hosts` one host,
    :mod:`.sources` what is read, :mod:`.planner` where members go.
Invariants
    A server without ``vhpc:`` extra specs costs microseconds. Placement makes
    every claim: what is read here is late, and only makes plans worse. No
    failure of a plan or of a database fails a request.
Tests
    ``nova_vhpc/tests/unit/scheduler``; in a real Nova and Placement
    ``nova_vhpc/tests/functional/scheduler``.
"""
