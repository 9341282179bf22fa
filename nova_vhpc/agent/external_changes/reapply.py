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

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.libvirt import cputune


def bandwidth(guest: Guest) -> None:
    """Period and quota. Raises libvirt.libvirtError, as all of these."""
    now = guest.expected.parameters
    theirs = {
        name: value
        for name, value in guest.echoes.written_over(guest.expected).items()
        if name in guest.released and isinstance(value, int)
    }
    if not theirs:
        return
    # What of ours belongs to it goes back in the same call.
    want = {
        name: cputune.plain(
            name,
            theirs.get(
                name,
                (now if name in guest.released else guest.original.parameters)[
                    name
                ],
            ),
        )
        for name in (cputune.PERIOD, cputune.QUOTA)
    }
    cputune.write_bandwidth(
        guest.domain, want[cputune.PERIOD], want[cputune.QUOTA], now
    )
    guest.note_written(want)


def shares(guest: Guest) -> None:
    """``cpu_shares`` that a window has written over."""
    theirs = guest.echoes.shares_theirs
    now = guest.expected.parameters.get(cputune.SHARES)
    if (
        theirs is not None
        and cputune.SHARES in guest.released
        # Another one that we wrote is somebody else's choice now.
        and now == guest.echoes.last.get(cputune.SHARES)
    ):
        cputune.write_shares(guest.domain, theirs)
        guest.note_written({cputune.SHARES: theirs})


def pins(guest: Guest) -> None:
    """Of each vCPU."""
    theirs = guest.echoes.written_over(guest.expected)
    for vcpu in range(len(guest.expected.vcpupins)):
        name = cputune.pin_name(vcpu)
        pin = theirs.get(name)
        if isinstance(pin, frozenset) and guest.is_released(name):
            cputune.write_pin(
                guest.domain, vcpu, pin, guest.expected.host_cpus
            )
            guest.note_written(pins={vcpu: pin})
