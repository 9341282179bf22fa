# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the checks expect of the guests, in libvirt and in the kernel."""

from typing import Any

import libvirt

from nova_vhpc_lab.hostvm import machine


def wait_for_slice(guests: machine.Guests) -> int:
    """Wait until the agent has written a period; return it in microseconds."""
    (domain,) = guests.domains()

    def period() -> Any:
        now = domain.schedulerParametersFlags(machine.LIVE)['vcpu_period']
        return now if now != 100_000 else None

    return machine.wait_for(period, 'a period of the agent')


def stop_and_compare(guests: machine.Guests, before: Any) -> None:
    """Stop the agent; the guests must be as they were."""
    machine.run('systemctl', 'stop', machine.UNIT)
    assert machine.unit_property('Result') == 'success', machine.agent_log()
    compare(guests, before)


def compare(guests: machine.Guests, before: Any) -> None:
    """Fail unless the guests are as they were."""
    # A restarted libvirt looks for control groups after it is reached.
    machine.wait_for(lambda: is_readable(guests), 'the settings')
    now = guests.settings()
    assert now == before, f'{before}\n{now}'


def is_readable(guests: machine.Guests) -> bool:
    """Return whether libvirt says how its guests are set."""
    try:
        guests.settings()
    except libvirt.libvirtError:
        return False
    return True


def wait_for_windows(guests: machine.Guests) -> None:
    """Wait until each guest's scope was idle, and was not."""
    for domain in guests.domains():
        idle = guests.scope(domain) / 'cpu.idle'
        for value in ('1', '0', '1'):
            machine.wait_for(
                lambda idle=idle, value=value: (
                    idle.read_text().strip() == value
                ),
                f'{domain.name()} to have cpu.idle {value}',
            )
