# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How queues and CPUs are numbered when several hosts share one clock.

CPUs are numbered through all hosts. The first groups are the root groups, one
per host; so the queue of a root group and a CPU has the number of the CPU.
"""

from nova_vhpc_lab.sim.kernel.compiled import inner


@inner
def queue_of(s, g, cpu):
    """Return the queue of a group for a CPU of the group's host."""
    per_host = s.k[0].per_host
    return g * per_host + cpu % per_host


@inner
def group_of(s, q):
    """Return the group that a queue belongs to."""
    return q // s.k[0].per_host


@inner
def first_cpu(s, cpu):
    """Return the first CPU of a CPU's host."""
    return cpu - cpu % s.k[0].per_host


@inner
def may_run(s, t, cpu):
    """Return whether a thread's pins include a CPU of its host."""
    return s.allowed[t, cpu % s.k[0].per_host]
