# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""One round: the agent works, faults happen, all is restored, all is exact."""

import random
import signal
import time

from nova_vhpc_lab.soak.chaos import (  # noqa: F401 add their kinds
    agent_faults,
    disk_faults,
    guest_faults,
    libvirt_faults,
)
from nova_vhpc_lab.soak.chaos.fault import Fault, draw
from nova_vhpc_lab.soak.chaos.host import Host
from nova_vhpc_lab.testbed.patience import PATIENCE_S

ENDS = ('stop', 'restore', 'next_agent', 'restore_twice')
_LEVELS = (' WARNING ', ' ERROR ', ' CRITICAL ')


class Round:
    """A round, which depends on the seed and its number only.

    :ivar faults: kinds of faults, in order.
    :ivar end: one of :data:`ENDS`.
    :ivar status: exit status of the end.
    :ivar touched: whether the agent had written when the faults began.
    """

    def __init__(self, host: Host, seed: int, number: int) -> None:
        self._host = host
        self._rng = random.Random(f'{seed} chaos {number}')
        self.faults: list[Fault] = draw(self._rng)
        self.end = self._rng.choice(ENDS)
        self.status: int | None = None
        self.touched = False

    def __str__(self) -> str:
        names = ', '.join(fault.name for fault in self.faults)
        options = self._host.options
        return f'{names}; {self.end} ended with {self.status}; {options}'

    def run(self) -> list[str]:
        """Return what is wrong after the round; nothing if all is right."""
        host, rng = self._host, self._rng
        host.set_options(**self._options())
        host.agent = host.spawn()
        host.wait_for_gang(rng)
        self.touched = host.everything() != host.before
        for fault in self.faults:
            fault.run(host, rng)
        # Some faults are still there while the settings are restored.
        if rng.random() < 0.5:
            host.heal()
        host.restart_libvirtd()
        log_size = host.log.stat().st_size if host.log.exists() else 0
        self.status = self._finish()
        wrong = self._silent_changes(log_size)
        host.heal()
        # A record that could not be removed changes nothing; the next can.
        if self.status != 0 or host.unwanted_records():
            # On a busy machine libvirt needs longer than a short deadline.
            host.set_options(call_deadline=60)
            status = host.restore()
            if status != 0:
                wrong.append(f'at last, --restore ended with {status}')
        wrong += [f'{who}: {how}' for who, how in host.changed().items()]
        wrong += [f"{who} has the journal's copy" for who in host.marked()]
        wrong += [f'{file} is left' for file in host.unwanted_records()]
        if 'Traceback' in host.log.read_text(errors='replace'):
            wrong.append('a traceback in the log')
        return wrong

    def _options(self) -> dict[str, object]:
        rng = self._rng
        options: dict[str, object] = {
            'vhpc_control__slice_policy': rng.choice(
                ('atc', 'gang', 'gang', 'fixed')
            ),
            'vhpc_control__pinning_policy': rng.choice(
                ('balance', 'none', 'io_pool')
            ),
            'period_ms': 30,
            'reconcile_period': rng.choice((0.3, 1, 5)),
            'window_weights': rng.choice(('cgroup', 'cgroup', 'libvirt')),
            'call_deadline': rng.choice((0.5, 5)),
        }
        if rng.random() < 0.15:
            # A broker that is away all the time.
            options['DEFAULT__transport_url'] = 'rabbit://a:b@127.0.0.1:1/'
        return options

    def _finish(self) -> int | None:
        """End the agent and restore; return the exit status."""
        host = self._host
        if self.end == 'stop' and host.agent.is_alive():
            return self._stop(host.agent)
        host.kill_agent()
        if self.end == 'next_agent':
            agent = host.spawn()
            end = time.monotonic() + PATIENCE_S
            while time.monotonic() < end and agent.is_alive():
                if host.status()['agent']['ticks'] > 3:
                    break
                time.sleep(0.05)
            time.sleep(0.5)
            return self._stop(agent)
        if self.end == 'restore_twice':
            both = [host.spawn('--restore') for _ in range(2)]
            for process in both:
                process.join(2 * PATIENCE_S)
            statuses = {process.exitcode for process in both}
            # One of them may find the other at work, and says so by 2.
            return max(statuses - {2}, default=2)
        return host.restore()

    def _stop(self, agent: object) -> int | None:
        host = self._host
        host.agent = agent
        host.signal_agent(signal.SIGTERM)
        host.agent.join(PATIENCE_S)
        status: int | None = host.agent.exitcode
        host.kill_agent()
        return status

    def _silent_changes(self, log_size: int) -> list[str]:
        """Return changed guests that exit status or log do not admit."""
        host = self._host
        changed = host.changed()
        if self.status == 0:
            # They are compared again, after which they are reported.
            return [f'{who} with exit status 0' for who in changed]
        with host.log.open('rb') as file:
            file.seek(log_size)
            lines = file.read().decode(errors='replace').splitlines()
        warnings = '\n'.join(
            line for line in lines if any(level in line for level in _LEVELS)
        )
        return [
            f'{who} is changed, and no warning names {host.names[who]}'
            for who in changed
            if host.names[who] not in warnings
            and host.uuids[who] not in warnings
        ]
