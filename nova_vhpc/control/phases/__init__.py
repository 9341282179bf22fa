# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Phases of VMs and clusters: I/O or computing.

Role
    Follow the I/O-perception paper: threshold, prediction, enter and leave.
Doors
    :class:`.tracker.PhaseTracker` takes the samples of a tick and returns the
    phase of each VM; members of a cluster have one phase
    (:class:`.group.GroupPhase`).
Invariants
    A group's phase ends also if its samples do. An exception of a predictor
    costs a prediction, and no tick.
Tests
    ``nova_vhpc/tests/unit/control/phases``.
"""
