# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""How queues and CPUs are numbered when several hosts share one clock.

CPUs are numbered through all hosts. The first groups are the root groups, one
per host; so the queue of a root group and a CPU has the number of the CPU.
"""

from nova_vhpc.sim.kernel.compiled import inner


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
