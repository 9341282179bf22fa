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

"""Writes what somebody else had set, where ours was written over it.

libvirt's events have told of it (:mod:`.event_echoes`). With the VM's lock
held.
"""

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cputune


def bandwidth(target: guest.Guest) -> None:
    """Period and quota. Raises libvirt.libvirtError, as all of these."""
    now = target.expected.parameters
    theirs = {
        name: value
        for name, value in target.echoes.written_over(target.expected).items()
        if name in target.released and isinstance(value, int)
    }
    if not theirs:
        return
    # What of ours belongs to it goes back in the same call.
    want = {
        name: cputune.plain(
            name,
            theirs.get(
                name,
                (
                    now
                    if name in target.released
                    else target.original.parameters
                )[name],
            ),
        )
        for name in (cputune.PERIOD, cputune.QUOTA)
    }
    cputune.write_bandwidth(
        target.domain, want[cputune.PERIOD], want[cputune.QUOTA], now
    )
    target.note_written(want)


def shares(target: guest.Guest) -> None:
    """``cpu_shares`` that a window has written over."""
    theirs = target.echoes.shares_theirs
    now = target.expected.parameters.get(cputune.SHARES)
    if (
        theirs is not None
        and cputune.SHARES in target.released
        # Another one that we wrote is somebody else's choice now.
        and now == target.echoes.last.get(cputune.SHARES)
    ):
        cputune.write_shares(target.domain, theirs)
        target.note_written({cputune.SHARES: theirs})


def pins(target: guest.Guest) -> None:
    """Of each vCPU."""
    theirs = target.echoes.written_over(target.expected)
    for vcpu in range(len(target.expected.vcpupins)):
        name = cputune.pin_name(vcpu)
        pin = theirs.get(name)
        if isinstance(pin, frozenset) and target.is_released(name):
            cputune.write_pin(
                target.domain, vcpu, pin, target.expected.host_cpus
            )
            target.note_written(pins={vcpu: pin})
