# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Values that somebody else has set.

Role
    Tell external changes from own writes, and respect or override them as
    ``[vhpc_agent] foreign_changes`` says.
Doors
    :class:`.policy.ExternalChangePolicy` checks a guest;
    :class:`.misdirected_writes.MisdirectedWrites` reverts a write that reached
    the domain's next run; :class:`.cpu_hotplug.CpuHotplug` lets pins follow
    host CPUs that are switched on or off.
Invariants
    A value that an agent may have written is never external; in doubt the
    operator's value stays. All is compared under the guest's lock.
Tests
    ``unit/agent/external_changes``; ``functional/agent/test_external_changes``
    and ``test_cpus`` on real libvirt.
"""
