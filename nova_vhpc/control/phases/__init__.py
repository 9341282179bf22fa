# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Whether a VM group is in the I/O phase.

Role
    The I/O-perception paper's section III: predict the next period, threshold
    it by Otsu's method, and enter or leave together.
Doors
    :class:`.tracker.PhaseTracker`, fed with samples once each period;
    :mod:`.group` is the rule of a group whose members are on several hosts.
Invariants
    A VM without measurement has no phase. All hosts that have heard the same
    decide the same.
Tests
    ``nova_vhpc/tests/unit/control/phases``.
"""
