# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows: the vCPUs of a spinning VM run all at once, or not at all.

Role
    Give each gang of a host windows in a rotation, on CPUs of its own, without
    taking CPU time from VMs that did not ask.
Doors
    :class:`.policy.GangPolicy`, a slice policy. It asks, in this order,
    :mod:`.demand` (who spins), :mod:`.waiting` (whom to tell to wait),
    :mod:`.gangs` (who runs together), :mod:`.stock_demand` and
    :mod:`.entitlement` (what each VM is due), :mod:`.rotations` with
    :mod:`.matrix` and :mod:`.frame_packing` (rows and slots),
    :mod:`.placement` (CPUs), :mod:`.weights`, :mod:`.schedule`, and
    :mod:`.feedback` (correction by measurement).
Invariants
    Windows are written only where the kernel has ``cpu.idle``. A VM that lacks
    CPU time ends the windows of the host.
Tests
    ``nova_vhpc/tests/unit/control/gang``; on simulated hosts
    ``lab/nova_vhpc_lab/tests/unit/sim``.
"""
