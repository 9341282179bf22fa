# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""One host: what it has for a member, and whether that suffices.

Role
    Turn Nova's host state and what agents published into a fit result with a
    reason, and into the facts that the planner compares.
Doors
    :func:`.requirements.evaluate` judges a host for the filter and for
    ``nova-vhpc-explain``; :func:`.state.facts` describes it to the planner.
Invariants
    All but :mod:`.state` and :mod:`.pci` are pure. Each rejection names CPU
    count, bridge, NIC or link, and what to do. While the members of a request
    are placed, a rejected host never passes again.
Tests
    ``nova_vhpc/tests/unit/scheduler/hosts``.
"""
