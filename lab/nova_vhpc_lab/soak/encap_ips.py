# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Attack a binder of encap IPs on a real Open vSwitch.

In each round a process binds and restores a port again and again, while
ovsdb-server or ovs-vswitchd goes, the port is plugged again, or an operator
changes the key; until the process is killed, perhaps its record damaged, and
another agent restores the port.
"""

import contextlib
import functools
import json
import logging
import multiprocessing
import pathlib
import random
import secrets
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

from nova_vhpc.agent.journal import record
from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import (
    encap_ip,
    encap_ip_writer,
    guest_ports,
)
from nova_vhpc.topology import links
from nova_vhpc_lab.ovn import domain
from nova_vhpc_lab.soak import damage
from nova_vhpc_lab.soak.part import Budget, Part, unlogged
from nova_vhpc_lab.testbed import open_vswitch
from nova_vhpc_lab.testbed.patience import PATIENCE_S

MAC = 'fa:16:3e:00:00:01'
UUID = '10000000-0000-4000-8000-000000000001'
PORT = 'tap01'
OWN = ('10.2.0.1', '10.3.0.1')
OPERATORS = (None, '10.1.0.1', '10.9.9.9')

_context = multiprocessing.get_context('forkserver')
_context.set_forkserver_preload([__name__])


def make_binder(ovsdb: connection.Ovsdb, state: str) -> encap_ip.EncapIpBinder:
    """Return the binder of an agent that has just started."""
    return encap_ip.EncapIpBinder(
        ovsdb,
        encap_ip_writer.EncapIpJournal(state),
        'h1',
        guest_ports.UplinkLinks(links.Links(pathlib.Path('/nowhere'))),
        lambda: False,
    )


def bind_for_ever(remote: str, state: str) -> None:
    """Bind the port to one uplink after the other, and restore it."""
    logging.disable(logging.CRITICAL)
    ovsdb = connection.Ovsdb(remote, timeout_s=0.5)
    ovsdb.start()
    binder = make_binder(ovsdb, state)
    target = domain.Domain(UUID, (MAC,))
    steps: list[Callable[[], Any]] = [
        functools.partial(
            binder.bind,
            claims.Claimant(target, (claims.ClaimedUplink('b', 'n', ip),)),
        )
        for ip in OWN
    ]
    steps.append(functools.partial(binder.restore, target))
    while True:
        for step in steps:
            try:
                step()
            except (
                UnsupportedError,
                connection.OvsdbError,
                record.JournalError,
            ):
                time.sleep(0.002)


class Host:
    """A host with one port, and the agent that is attacked.

    :ivar expected: the key that the port must have in the end.
    """

    def __init__(self, switch: open_vswitch.PrivateOpenVswitch) -> None:
        self.switch = switch
        self.state = ''
        self.expected: str | None = None
        self._agent: Any = None

    @property
    def file(self) -> pathlib.Path:
        """The record of the guest."""
        return pathlib.Path(self.state, 'encap-ips', f'{UUID}.json')

    def vsctl(self, *words: str) -> str:
        """Run ovs-vsctl, which does not wait for ovs-vswitchd."""
        return self.switch.vsctl('--no-wait', *words)

    def plug(self) -> None:
        """Add the port as os-vif does."""
        self.vsctl(
            *('--if-exists', 'del-port', PORT),
            *('--', 'add-port', 'br-int', PORT),
            *('--', 'set', 'Interface', PORT, 'type=internal'),
            f'external_ids:vm-uuid={UUID}',
            f'external_ids:attached-mac="{MAC}"',
        )
        self.expected = None

    def set_key(self, value: str | None) -> None:
        """Set or remove the key, whatever it is when this arrives.

        ``ovs-vsctl set`` only inserts a key that it has not seen, which does
        nothing if the agent has written it meanwhile.
        """
        key = encap_ip.KEY
        mutations: list[Any] = [['external_ids', 'delete', ['set', [key]]]]
        if value is not None:
            pair = ['map', [[key, value]]]
            mutations.append(['external_ids', 'insert', pair])
        self.switch.transact(
            {
                'op': 'mutate',
                'table': 'Interface',
                'where': [['name', '==', PORT]],
                'mutations': mutations,
            }
        )
        self.expected = value

    def key(self) -> str | None:
        """Return the key that the port has."""
        text = self.vsctl(
            *('--if-exists', 'get', 'Interface', PORT),
            f'external_ids:{encap_ip.KEY}',
        )
        return text.strip(' \n"') or None

    def start_agent(self) -> None:
        """Start the agent, and wait until it is about to write."""
        self._agent = _context.Process(
            target=bind_for_ever, args=(self.switch.remote, self.state)
        )
        self._agent.start()
        end_s = time.monotonic() + PATIENCE_S
        while not self.file.exists():
            if time.monotonic() > end_s or not self._agent.is_alive():
                raise AssertionError('the agent does not write')
            time.sleep(0.002)

    def kill_agent(self) -> bool:
        """Kill the agent; return whether it still ran."""
        if self._agent is None:
            return True
        ran = bool(self._agent.is_alive())
        self._agent.kill()
        self._agent.join()
        self._agent = None
        return ran

    def restore(self) -> dict[str, str]:
        """Restore the port as the next agent does; return the failures."""
        ovsdb = connection.Ovsdb(self.switch.remote)
        ovsdb.start()
        try:
            if not ovsdb.wait(PATIENCE_S):
                raise AssertionError(ovsdb.problem())
            return make_binder(ovsdb, self.state).restore_all(lambda: None)
        finally:
            ovsdb.stop()


def database_away(host: Host, rng: random.Random) -> None:
    """Kill ovsdb-server, and start it after a while."""
    host.switch.kill_database()
    time.sleep(rng.uniform(0, 0.3))
    host.switch.start_database()


def database_frozen(host: Host, rng: random.Random) -> None:
    """Freeze ovsdb-server for a while; writes may time out meanwhile."""
    host.switch.pause_database()
    time.sleep(rng.uniform(0, 0.8))
    host.switch.resume_database()


def switch_killed(host: Host, rng: random.Random) -> None:
    """Kill ovs-vswitchd, and start it again."""
    host.switch.kill_switch()
    time.sleep(rng.uniform(0, 0.2))
    host.switch.start_switch()


def key_changed(host: Host, rng: random.Random) -> None:
    """Let an operator set or remove the key."""
    host.set_key(rng.choice(OPERATORS))


def plugged_again(host: Host, rng: random.Random) -> None:
    """Plug the port again, as a hard reboot does."""
    host.plug()


FAULTS = (
    *(database_away, database_frozen, switch_killed),
    *(key_changed, plugged_again),
)


class EncapIps(Part):
    """Runs rounds on one Open vSwitch; needs root."""

    name = 'encap_ips'
    counted = 'rounds'

    def run(self, seed: int, first: int, budget: Budget) -> bool:
        """Print each round that is wrong; return whether none is."""
        rounds = failed = left = damaged = 0
        with unlogged(), open_vswitch.PrivateOpenVswitch() as switch:
            host = Host(switch)
            self._prepare(host)
            for number in budget.numbers(first):
                rounds += 1
                played = Round(host, random.Random(f'{seed} {number}'))
                wrong = played.run()
                left += played.was_left
                damaged += played.is_damaged
                if wrong:
                    failed += 1
                    print(
                        f'encap_ips: round {number}: {played}\n  {wrong}\n'
                        + self.repeat(seed, number),
                        flush=True,
                    )
        print(
            f'encap_ips: {rounds} rounds, {failed} failed; the agent had left '
            f'its key in {left}; {damaged} records were damaged',
            flush=True,
        )
        return not failed

    @staticmethod
    def _prepare(host: Host) -> None:
        host.vsctl('add-br', 'br-int')
        host.vsctl('set', 'Bridge', 'br-int', 'datapath_type=netdev')
        addresses = ','.join(('10.1.0.1', *OWN))
        host.vsctl(
            *('set', 'Open_vSwitch', '.'),
            f'external_ids:ovn-encap-ip="{addresses}"',
        )


class Round:
    """One round.

    :ivar was_left: whether the killed agent had left its key at the port.
    :ivar is_damaged: whether its record was damaged.
    """

    def __init__(self, host: Host, rng: random.Random) -> None:
        self._host = host
        self._rng = rng
        self._faults = rng.sample(FAULTS, rng.choice((0, 1, 1, 2, 3)))
        self._damages = rng.random() < 0.25
        self.was_left = False
        self.is_damaged = False

    def __str__(self) -> str:
        names = ', '.join(fault.__name__ for fault in self._faults)
        return f'{names or "nothing"}{", damaged" if self._damages else ""}'

    def run(self) -> str:
        """Return what is wrong; empty if nothing is."""
        with tempfile.TemporaryDirectory(dir='/dev/shm') as state:
            self._host.state = state
            try:
                return self._run()
            except Exception:
                return traceback.format_exc()
            finally:
                self._host.kill_agent()
                with contextlib.suppress(open_vswitch.OpenVswitchError):
                    self._host.switch.resume_database()

    def _run(self) -> str:
        host, rng = self._host, self._rng
        host.plug()
        host.set_key(rng.choice(OPERATORS[:2]))
        host.start_agent()
        time.sleep(rng.uniform(0, 0.2))
        for fault in self._faults:
            fault(host, rng)
            time.sleep(rng.uniform(0, 0.2))
        if not host.kill_agent():
            return 'the agent ended by itself'
        # What it sent last may still be on its way.
        host.vsctl(
            *('set', 'Open_vSwitch', '.'),
            f'external_ids:mark={secrets.token_hex(4)}',
        )
        present = host.key()
        self.was_left = present in OWN
        if self._damages and self._damage():
            return self._check_damaged(present)
        failures = host.restore()
        if failures:
            return f'not restored: {failures}'
        if host.key() != host.expected:
            return f'{host.key()} instead of {host.expected}'
        return ''

    def _damage(self) -> bool:
        """Damage the record; return whether there is one that is damaged."""
        file = self._host.file
        if not file.exists():
            return False
        text = file.read_text()
        damaged = damage.characters(self._rng, text)
        if self._rng.random() < 0.3:
            newer = {**json.loads(text), 'version': record.VERSION + 1}
            damaged = json.dumps(newer)
        file.write_bytes(damaged.encode(errors='surrogatepass'))
        try:
            encap_ip_writer.EncapIpJournal(self._host.state).load(UUID)
        except record.JournalError:
            self.is_damaged = True
        return self.is_damaged

    def _check_damaged(self, present: str | None) -> str:
        failures = self._host.restore()
        if UUID not in failures:
            return f'a damaged record is not reported: {failures}'
        if self._host.key() != present:
            return f'{self._host.key()} instead of {present}: damaged record'
        return ''
