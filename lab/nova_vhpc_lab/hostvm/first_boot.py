# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Checks of the first boot: the agent's job, and what may interrupt it."""

import contextlib
import pathlib
import re
import time
from collections.abc import Iterator

from nova_vhpc_lab.hostvm import expect, machine, playbook

QUOTA_US = 80_000
"""CPU time of each vCPU in 100,000 us: a quota that a slice can shorten."""

MOST_EXPOSURE = 3.0
"""Of ``systemd-analyze security``; below 4 is its "OK"."""

DROP_IN = pathlib.Path(f'/run/systemd/system/{machine.UNIT}.d/checks.conf')


def check_machine_is_like_an_operators(guests: machine.Guests) -> None:
    """systemd, cgroup v2 alone, AppArmor, and a guest in a machine's scope."""
    assert pathlib.Path('/proc/1/comm').read_text() == 'systemd\n'
    controllers = pathlib.Path('/sys/fs/cgroup/cgroup.controllers')
    assert {'cpu', 'cpuset', 'io'} <= set(controllers.read_text().split())
    enabled = pathlib.Path('/sys/module/apparmor/parameters/enabled')
    assert enabled.read_text() == 'Y\n'
    guests.start('one', QUOTA_US)
    (domain,) = guests.domains()
    assert guests.scope(domain).is_dir()
    assert 'qemu-1-one' in machine.run('machinectl', 'list', '--no-legend')
    label = pathlib.Path(f'/proc/{guests.pid(domain)}/attr/current')
    assert label.read_text() == f'libvirt-{domain.UUIDString()} (enforce)\n'


def check_role_installs_an_agent_that_writes_the_slice(
    guests: machine.Guests,
) -> None:
    """libvirt has the value, and so has the control group of each vCPU."""
    before = guests.settings()
    playbook.install()
    assert machine.unit_property('UnitFileState') == 'enabled'
    assert machine.unit_property('ActiveState') == 'active'
    machine.wait_for_agent()
    period_us = expect.wait_for_slice(guests)
    (domain,) = guests.domains()
    for vcpu in range(2):
        (path,) = guests.scope(domain).glob(f'**/vcpu{vcpu}/cpu.max')
        quota, written = map(int, path.read_text().split())
        assert written == period_us
        assert abs(quota / period_us - QUOTA_US / 100_000) < 0.01
    assert machine.vms()['one']['control_group']
    expect.stop_and_compare(guests, before)


def check_probes_measure(guests: machine.Guests) -> None:
    """Under the unit's hardening, of a QEMU of another user."""
    machine.run('systemctl', 'start', machine.UNIT)
    status = machine.wait_for_agent()
    assert 'schedstat' in status['agent']['probes'], status['agent']
    assert 'block' in status['agent']['probes'], status['agent']
    vm = machine.wait_for(
        lambda: (
            (machine.vms().get('one') or {}).get('sync_latency_us')
            and machine.vms()['one']
        ),
        'a latency',
    )
    assert vm['unmeasured'] == [], vm
    assert vm['pid'] == guests.pid(guests.domains()[0])


def check_restart_of_libvirt(guests: machine.Guests) -> None:
    """The guest runs on and is managed on; the other daemon does not run."""
    reconnects = machine.wait_for_agent()['agent']['reconnects']
    expect.wait_for_slice(guests)
    before = guests.settings()
    machine.run('systemctl', 'restart', machine.libvirt_units()[0])
    machine.wait_for(
        lambda: (
            machine.agent_status()['agent'].get('reconnects') != reconnects
        ),
        'the agent to lose libvirt',
    )
    machine.wait_for_agent()
    assert machine.vms()['one']['writes']
    expect.compare(guests, before)
    used, other = machine.libvirt_units()
    assert machine.unit_property('ActiveState', used) == 'active'
    assert machine.unit_property('ActiveState', other) == 'inactive'


def check_restart_of_the_agent(guests: machine.Guests) -> None:
    """The new one writes again; the last one leaves what was there before."""
    machine.run('systemctl', 'restart', machine.UNIT)
    machine.wait_for_agent()
    expect.wait_for_slice(guests)
    machine.run('systemctl', 'stop', machine.UNIT)
    (domain,) = guests.domains()
    tune = domain.schedulerParametersFlags(machine.LIVE)
    assert (tune['vcpu_period'], tune['vcpu_quota']) == (100_000, QUOTA_US)


def check_hook_restores_a_saved_guest(guests: machine.Guests) -> None:
    """libvirt's daemon may run the hook, in spite of its AppArmor profile."""
    machine.run('systemctl', 'start', machine.UNIT)
    machine.wait_for_agent()
    expect.wait_for_slice(guests)
    (domain,) = guests.domains()
    domain.managedSave()
    machine.run('systemctl', 'stop', machine.UNIT)
    domain.create()
    log = machine.run('journalctl', '-b', '-o', 'cat', '-t', 'nova-vhpc-hook')
    assert 'removed the settings' in log, log
    tune = domain.schedulerParametersFlags(machine.LIVE)
    assert (tune['vcpu_period'], tune['vcpu_quota']) == (100_000, QUOTA_US)


def check_gang_windows_weigh_the_scopes(guests: machine.Guests) -> None:
    """Each guest is idle when it is the other's turn; all is put back."""
    guests.start('two', QUOTA_US)
    before = guests.settings()
    machine.configure(slice_policy='gang')
    machine.run('systemctl', 'start', machine.UNIT)
    machine.wait_for_agent()
    expect.wait_for_windows(guests)
    # systemd writes the weights that it knows of, beside the agent.
    machine.run('systemctl', 'daemon-reload')
    time.sleep(5)
    expect.wait_for_windows(guests)
    status = machine.agent_status()
    assert status['agent']['foreign_changes'] == 0, status
    assert not status['windows']['failing'], status['windows']
    assert 'its weight is written by libvirt' not in machine.agent_log()
    expect.stop_and_compare(guests, before)


@contextlib.contextmanager
def _crashed(guests: machine.Guests, drop_in: str) -> Iterator[None]:
    """Start the agent with a drop-in of its unit, kill it, forget both.

    The agent has opened gang windows when it is killed.
    """
    DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    DROP_IN.write_text(drop_in)
    machine.run('systemctl', 'daemon-reload')
    try:
        machine.run('systemctl', 'start', machine.UNIT)
        machine.wait_for_agent()
        expect.wait_for_windows(guests)
        _kill('KILL')
        machine.wait_for(
            lambda: machine.unit_property('ActiveState') == 'failed', 'the end'
        )
        yield
    finally:
        DROP_IN.unlink()
        machine.run('systemctl', 'daemon-reload')
        machine.run('systemctl', 'reset-failed', machine.UNIT)


def _kill(signal: str) -> None:
    machine.run(
        'systemctl',
        'kill',
        '--kill-who=main',
        f'--signal={signal}',
        machine.UNIT,
    )


def check_restore_by_hand_after_kill(guests: machine.Guests) -> None:
    """Without ``ExecStopPost=`` the guests stay as the crash left them."""
    before = guests.settings()
    with _crashed(guests, '[Service]\nRestart=no\nExecStopPost=\n'):
        assert guests.settings() != before, 'the agent wrote nothing'
        machine.run(
            *('/opt/nova-vhpc/bin/nova-vhpc-agent', '--restore'),
            *('--config-file', str(machine.CONFIG)),
        )
        expect.compare(guests, before)


def check_unit_restores_after_kill(guests: machine.Guests) -> None:
    """``ExecStopPost=`` does what was done by hand."""
    before = guests.settings()
    with _crashed(guests, '[Service]\nRestart=no\n'):
        expect.compare(guests, before)


def check_watchdog_restarts_an_agent_that_hangs(
    guests: machine.Guests,
) -> None:
    """The new agent finds the guests restored, and goes on."""
    before = guests.settings()
    machine.run('systemctl', 'start', machine.UNIT)
    old = machine.wait_for_agent()['agent']['pid']
    expect.wait_for_windows(guests)
    _kill('STOP')
    machine.wait_for(
        lambda: machine.unit_property('MainPID') not in ('0', str(old)),
        'another agent',
    )
    assert 'Watchdog timeout' in machine.agent_log()
    assert machine.wait_for_agent()['agent']['pid'] != old
    expect.wait_for_windows(guests)
    assert machine.unit_property('NRestarts') == '1'
    expect.stop_and_compare(guests, before)


def check_hardening(guests: machine.Guests) -> None:
    """The exposure, from 0.0 (none) to 10.0, and what the kernel refused."""
    text = machine.run(
        'systemd-analyze',
        'security',
        '--no-pager',
        machine.UNIT,
        may_fail=True,
    )
    match = re.search(r'exposure level for .*: ([0-9.]+) ', text)
    assert match is not None, text
    assert float(match[1]) <= MOST_EXPOSURE, text
    # libvirt's and QEMU's own profiles; the agent has none.
    kernel = machine.run('journalctl', '-b', '-k', '-o', 'cat', '--no-pager')
    denied = [line for line in kernel.splitlines() if 'DENIED' in line]
    assert not [line for line in denied if 'vhpc' in line], denied
    log = machine.agent_log()
    assert 'Traceback' not in log, log
    assert 'Permission denied' not in log, log
    assert 'not permitted' not in log, log


def check_agent_runs_when_the_machine_reboots(guests: machine.Guests) -> None:
    """With windows; the second boot's checks begin with what is left."""
    machine.run('systemctl', 'start', machine.UNIT)
    machine.wait_for_agent()
    expect.wait_for_windows(guests)
    journal = pathlib.Path('/var/lib/nova-vhpc/journal')
    assert len(list(journal.glob('*.json'))) == 2


CHECKS = (
    check_machine_is_like_an_operators,
    check_role_installs_an_agent_that_writes_the_slice,
    check_probes_measure,
    check_restart_of_libvirt,
    check_restart_of_the_agent,
    check_hook_restores_a_saved_guest,
    check_gang_windows_weigh_the_scopes,
    check_restore_by_hand_after_kill,
    check_unit_restores_after_kill,
    check_watchdog_restarts_an_agent_that_hangs,
    check_hardening,
    check_agent_runs_when_the_machine_reboots,
)
