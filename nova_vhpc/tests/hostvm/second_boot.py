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

"""Checks of the second boot: what a reboot leaves, and what removal does."""

import pathlib

from nova_vhpc.tests.hostvm import first_boot, machine

PREFIX = pathlib.Path('/opt/nova-vhpc')


def check_agent_is_up_after_the_reboot(guests: machine.Guests) -> None:
    """The journal of guests that the reboot ended is gone."""
    machine.wait_for_agent()
    assert not [domain for domain in guests.domains() if domain.isActive()]
    journal = pathlib.Path('/var/lib/nova-vhpc/journal')
    machine.wait_for(
        lambda: not list(journal.glob('*.json')), 'the journal to be empty'
    )


def check_guests_of_the_new_boot_are_managed(guests: machine.Guests) -> None:
    """And restored when the agent stops."""
    machine.run('systemctl', 'stop', machine.UNIT)
    for domain in guests.domains():
        domain.create()
    before = guests.settings()
    machine.run('systemctl', 'start', machine.UNIT)
    machine.wait_for_agent()
    first_boot.wait_for_windows(guests)
    first_boot.stop_and_compare(guests, before)


def check_removal_leaves_nothing(guests: machine.Guests) -> None:
    """As of "Removal" in doc/source/admin/enabling.rst, guests running."""
    before = guests.settings()
    machine.run('systemctl', 'start', machine.UNIT)
    machine.wait_for_agent()
    first_boot.wait_for_windows(guests)
    machine.run('systemctl', 'disable', '--now', machine.UNIT)
    first_boot.compare(guests, before)
    for domain in guests.domains():
        assert 'nova-vhpc' not in domain.XMLDesc(), domain.XMLDesc()
    units = pathlib.Path('/etc/systemd/system')
    (units / machine.UNIT).unlink()
    machine.run('rm', '-r', str(units / f'{machine.UNIT}.d'))
    machine.run('systemctl', 'daemon-reload')
    for path in ('/var/lib/nova-vhpc', '/run/nova-vhpc', '/etc/nova-vhpc'):
        machine.run('rm', '-rf', path)
    machine.run('rm', '-f', '/run/libvirt/nova-vhpc-agent.lock')
    machine.run(str(PREFIX / 'bin/pip'), 'uninstall', '--yes', 'nova-vhpc')
    for listing in ('list-units', 'list-unit-files'):
        text = machine.run('systemctl', listing, '--all', '--no-legend')
        assert not [x for x in text.splitlines() if 'vhpc' in x], text
    left = _left()
    assert not left, left


def _left() -> list[str]:
    """Return the paths with our name, but for the checks' own."""
    found = machine.run(
        'find', '/', '/run', '/dev/shm', '-xdev', '-name', '*vhpc*'
    )
    return [
        path
        for path in found.split()
        if path != str(PREFIX) and not path.startswith('/var/lib/hostvm/')
    ]


CHECKS = (
    check_agent_is_up_after_the_reboot,
    check_guests_of_the_new_boot_are_managed,
    check_removal_leaves_nothing,
)
