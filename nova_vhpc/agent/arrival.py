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

"""What a VM brings along from another run: its copy of the journal.

By live migration, or back from disk after a managed save. What is in force
is partly ours; the copy says what was there before.
"""

from nova_vhpc.agent import cputune, journal

_ALL_BUT_PINS = frozenset({cputune.PERIOD, cputune.QUOTA, cputune.SHARES})


def not_ours(copy: journal.Record) -> frozenset[str]:
    """What is to be left as it came: names as of :func:`cputune.restore`."""
    left = copy.released
    if copy.settled:
        left |= _ALL_BUT_PINS
    if not copy.repin and not copy.floats:
        # Never pinned by us. Nova gives guests with dedicated CPUs or NUMA
        # nodes other CPUs on another host, which are in force already.
        left |= {cputune.PINS}
    return left


def pins(
    copy: journal.Record,
    cpuset: frozenset[int] | None,
    here: frozenset[int],
) -> tuple[frozenset[int] | None, ...]:
    """The VM's own pins in terms of this host's CPUs, for each vCPU.

    :param cpuset: of its ``<vcpu>``, which Nova writes for each host.
    :param here: this host's CPUs.
    :returns: None where it may use whatever Nova gives to guests.
    """
    everywhere = frozenset(range(copy.original.host_cpus))
    return tuple(
        None
        if copy.floats
        or pin == everywhere
        or cpuset is not None
        or not pin & here
        else pin & here
        for pin in copy.original.vcpupins
    )
