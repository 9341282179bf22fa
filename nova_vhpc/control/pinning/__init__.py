# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which CPUs the vCPUs of a VM may use.

Role
    Keep the vCPUs of a VM on different CPUs, and VMs in the I/O phase on a
    pool of their own.
Doors
    The plugins :class:`.balance.BalancePolicy` and
    :class:`.io_pool.IoPoolPolicy`, which follow :class:`.base.PinningPolicy`;
    :mod:`.spread` and :mod:`.pools` do the work on :mod:`.cpu_loads`.
Invariants
    No VM leaves the CPUs that Nova gave it. Moves are rare: a pin stays while
    it is no worse than the best by a margin.
Tests
    ``nova_vhpc/tests/unit/control/pinning``.
"""
