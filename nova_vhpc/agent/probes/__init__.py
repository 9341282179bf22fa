# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Probes: what guests and the host do, from files that are kept open.

Role
    Measure synchronisation latency and I/O events of each guest, and what
    CPUs other load takes.
Doors
    :func:`.sampler.make_sampler` picks the probes that work here;
    :class:`.sampler.VmReader` reads one guest; a probe is a class of
    :mod:`.base`, named by an entry point. :class:`.unmanaged.UnmanagedVms`
    and :mod:`.outside_load` see all other load; :mod:`.starvation` finds
    guests that get less than their share.
Invariants
    No probe calls libvirt or QEMU, so none can hang. A value that cannot be
    read is unknown, never zero.
Tests
    ``unit/agent/probes``; ``functional/agent/test_probes``.
"""
