# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Decisions: what is known of a host in, a plan for its VMs out.

Role
    Time slices, gang windows, pins and I/O phases of the papers.
Doors
    :class:`.controller.Controller`, once each tick; :mod:`.model` has views
    and plans. Slice and pinning policies and predictors are plugins.
Invariants
    Pure: no clock, file, socket or library of OpenStack; the same views give
    the same plans. Opted-in or not, a VM receives at least 0.95 of the CPU
    time that Linux alone would give it.
Tests
    ``nova_vhpc/tests/unit/control``; many hosts in
    ``lab/nova_vhpc_lab/tests/unit/sim``.
"""
