# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Checks of the second boot: what a reboot leaves, and what removal does."""

import pathlib

from nova_vhpc_lab.hostvm import expect, machine, playbook


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
    expect.wait_for_windows(guests)
    expect.stop_and_compare(guests, before)


def check_role_withdraws_and_leaves_nothing(guests: machine.Guests) -> None:
    """No file, no unit and no setting of a guest, with guests running."""
    before = guests.settings()
    machine.run('systemctl', 'start', machine.UNIT)
    machine.wait_for_agent()
    expect.wait_for_windows(guests)
    playbook.play('withdraw.yml')
    expect.compare(guests, before)
    for domain in guests.domains():
        assert 'nova-vhpc' not in domain.XMLDesc(), domain.XMLDesc()
    # systemd forgets a unit some time after its file is gone.
    machine.wait_for(lambda: not _units(), f'none of {_units()}')
    left = _left()
    assert not left, left


def _units() -> list[str]:
    """Return what systemd says of units with our name."""
    return [
        line
        for listing in ('list-units', 'list-unit-files')
        for line in machine.run(
            *('systemctl', listing, '--all', '--no-legend', '*vhpc*'),
            # Some versions of systemd exit with 1 if there is none.
            may_fail=True,
        ).splitlines()
    ]


def _left() -> list[str]:
    """Return the paths with our name, but for the checks' own."""
    found = machine.run(
        *('find', '/', '/run', '/dev/shm', '-xdev'),
        *('-path', str(playbook.PLACE), '-prune', '-o'),
        *('-name', '*vhpc*', '-print'),
    )
    return found.split()


CHECKS = (
    check_agent_is_up_after_the_reboot,
    check_guests_of_the_new_boot_are_managed,
    check_role_withdraws_and_leaves_nothing,
)
