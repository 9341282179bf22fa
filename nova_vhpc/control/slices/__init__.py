# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Time slices of parallel VMs by their synchronization latency.

Role
    Adaptive time-slice control of the ATC paper, held back where a shorter
    slice made latency worse.
Doors
    :class:`.atc.AtcPolicy`, a plugin that follows :class:`.base.SlicePolicy`;
    :class:`.feedback_guard.FeedbackGuard` around it.
Invariants
    A slice stays within the limits of the actuator, and changes by the steps
    of Algorithm 1.
Tests
    ``nova_vhpc/tests/unit/control/slices``; rivals of the paper in
    ``lab/nova_vhpc_lab/rivals``.
"""
