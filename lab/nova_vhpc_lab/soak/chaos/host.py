# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A host with guests, on which the agent runs and things go wrong."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time
import uuid as uuid_module
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

import libvirt

from nova_vhpc.agent.journal import store
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.functional.agent import base, test_trouble
from nova_vhpc_lab.soak.chaos import bystanders, wall_clock
from nova_vhpc_lab.testbed.patience import PATIENCE_S

PARALLEL = {'vhpc:workload': 'parallel'}
_WRITABLE = ('metadata', 'vcpu', 'cputune', 'devices/interface')


def run_agent(
    argv: list[str], log: str, environ: dict[str, str], clock: str
) -> None:
    """Be an agent whose wall clock can jump."""
    wall_clock.follow(pathlib.Path(clock))
    base._run_agent(argv, log, environ)


class Host(base.AgentTestCase):
    """Private libvirtd, its guests, and at most one agent to be attacked.

    The guests live through all rounds. Those called *gang*, *quota*,
    *latency* and *dedicated* have ``vhpc:`` extra specs; *server* and *other*
    have not and are watched all the time.

    :ivar allowed: what the guests may be like after the round: as before, or
        as an operator set them.
    :ivar stale: guests to be started anew after the round.
    """

    allowed: dict[str, list[Any]]

    def runTest(self) -> None:
        """Nothing: rounds are run by :mod:`rounds`."""

    def setUp(self) -> None:
        super().setUp()
        self.state = self.path / 'state'
        self.state.mkdir(mode=0o700)
        # A disk of its own, which can be full.
        subprocess.run(
            (
                *('mount', '-t', 'tmpfs', '-o', 'size=1m,mode=700', 'soak'),
                str(self.state),
            ),
            check=True,
        )
        self.addCleanup(
            subprocess.run, ('umount', '-l', str(self.state)), check=True
        )
        self.clock = self.path / 'clock'
        wall_clock.jump(self.clock, 0)
        self.agent: Any = None
        self.options: dict[str, Any] = {}
        self.stale: set[str] = set()
        self.names: dict[str, str] = {}
        self.uuids: dict[str, str] = {}
        self._definitions: dict[str, str] = {}
        dedicated = {**PARALLEL, 'hw:cpu_policy': 'dedicated'}
        self._make('gang', PARALLEL, busy=True, spare_vcpus=1)
        self._make('quota', PARALLEL, busy=True, cputune=base.OWN_QUOTA)
        self._make('latency', {'vhpc:workload': 'latency'})
        self._make('dedicated', dedicated)
        self._make('server', {})
        self._make('other', None, cputune='<shares>777</shares>')
        self.before = self.everything()
        self.allowed = {}
        found = qemu_process.Processes()
        watched = ('server', 'other')
        self.bystanders = bystanders.Bystanders(
            {self.names[who]: found.find(self.uuids[who]) for who in watched},
            [self.uuids[who] for who in watched],
            self.journal.path,
        )
        self._bystander_xml = {who: self._writable_xml(who) for who in watched}
        self.bystanders.start()
        self.addCleanup(self.bystanders.stop)

    def _make(
        self, who: str, specs: dict[str, str] | None, **how: Any
    ) -> None:
        name = f'soak{uuid_module.uuid4().hex[:12]}'
        domain = self.domain(specs, name=name, **how)
        self.names[who] = name
        self.uuids[who] = domain.UUIDString()
        self._definitions[who] = domain.XMLDesc(
            libvirt.VIR_DOMAIN_XML_INACTIVE
        )

    @property
    def journal(self) -> store.Journal:
        """The agent's journal."""
        return store.Journal(str(self.state))

    def records(self) -> list[pathlib.Path]:
        """Return the files of the journal's records."""
        return sorted(self.journal.path.glob('*.json'))

    def unwanted_records(self) -> list[str]:
        """Return the names of records that must not remain.

        A guest that was handed back to an operator keeps its record, so that
        it stays so.
        """
        kept = {self.uuids[who] for who in self.allowed}
        return [file.name for file in self.records() if file.stem not in kept]

    def guest(self, who: str) -> libvirt.virDomain:
        """Return a guest's domain."""
        return self.conn.lookupByUUIDString(self.uuids[who])

    def pid(self, who: str) -> int:
        """Return the process of a guest's QEMU."""
        return qemu_process.Processes().find(self.uuids[who])

    def everything(self) -> dict[str, Any]:
        """Return all settings of all guests; a text if one cannot be read."""
        settings: dict[str, Any] = {}
        for who in self.uuids:
            try:
                settings[who] = base.everything(self.guest(who))
            except libvirt.libvirtError as error:
                settings[who] = str(error)
        return settings

    def changed(self) -> dict[str, str]:
        """Return how guests differ from what they may be like."""
        return {
            who: f'{settings} instead of {self.allowed_for(who)}'
            for who, settings in self.everything().items()
            if settings not in self.allowed_for(who)
        }

    def allow_definitions(self) -> None:
        """Allow what is defined, too, as no record says what was set live."""
        for who, settings in list(self.allowed.items()):
            if self.before[who] not in settings:
                self.allowed[who] = [*settings, self.before[who]]

    def allowed_for(self, who: str) -> list[Any]:
        """Return the settings that a guest may have after the round."""
        return self.allowed.get(who, [self.before[who]])

    def marked(self) -> list[str]:
        """Return the guests that still have the journal's copy."""
        return [
            who
            for who in self.uuids
            if store.METADATA_URI in self.guest(who).XMLDesc(0)
        ]

    def bystander_changes(self) -> list[str]:
        """Return what changed of domains that nobody may write to."""
        return self.bystanders.take_changes() + [
            f'XML of {who}'
            for who, xml in self._bystander_xml.items()
            if self._writable_xml(who) != xml
        ]

    def _writable_xml(self, who: str) -> list[str]:
        """Return what an agent could change of a guest's XML.

        The rest may change by itself: a libvirtd that starts anew forgets the
        alias of a USB controller that is none.
        """
        root = ElementTree.fromstring(self.guest(who).XMLDesc(0))
        return [
            ElementTree.tostring(element, 'unicode')
            for path in _WRITABLE
            for element in root.iterfind(path)
        ]

    def restart(self, who: str) -> None:
        """Destroy a guest if it runs, and start it, as a hard reboot does."""
        domain = self.guest(who)
        with contextlib.suppress(libvirt.libvirtError):
            domain.destroy()
        self.create(who)

    def create(self, who: str) -> None:
        """Start a guest; retry while libvirt still ends its last run."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                domain = self.guest(who)
            except libvirt.libvirtError:
                # Of a transient domain, nothing remains.
                domain = self.conn.defineXML(self._definitions[who])
            try:
                if not domain.isActive():
                    domain.create()
                break
            except libvirt.libvirtError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.allowed.pop(who, None)
        self.stale.discard(who)

    def spawn(self, *arguments: str, environ: Any = None) -> Any:
        """Start the agent with the written configuration; do not wait."""
        process = base._context.Process(
            target=run_agent,
            args=(
                ['--config-file', str(self.path / 'agent.conf'), *arguments],
                str(self.log),
                dict(environ or {}),
                str(self.clock),
            ),
        )
        process.start()
        self.processes.append(process)
        return process

    def signal_agent(self, number: int) -> None:
        """Send a signal to the agent, if it still runs."""
        if self.agent.is_alive():
            os.kill(self.agent.pid, number)

    def kill_agent(self) -> None:
        """Kill the agent and wait for its end."""
        self.signal_agent(signal.SIGKILL)
        self.agent.join(PATIENCE_S)

    def set_options(self, **options: Any) -> None:
        """Write the configuration, changed by some options."""
        self.options.update(options)
        self.configure(**self.options)

    @contextlib.contextmanager
    def held(self, who: str) -> Iterator[None]:
        """Have libvirt's calls on a guest wait, until the block ends."""
        pid = self.pid(who)
        os.kill(pid, signal.SIGSTOP)
        other = libvirt.open(self.daemon.uri)
        holder = threading.Thread(
            target=test_trouble.ask_monitor, args=(other, self.uuids[who])
        )
        holder.start()
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            holder.join(PATIENCE_S)
            with contextlib.suppress(libvirt.libvirtError):
                other.close()

    def restart_libvirtd(self) -> None:
        """Start libvirtd if it does not run, and connect."""
        self.daemon.thaw()
        try:
            self.conn.getLibVersion()
        except libvirt.libvirtError:
            self.daemon.start()
            self.reconnect()

    def remount(self, mode: str) -> None:
        """Make the disk of the state directory writable or not.

        :param mode: ``rw`` or ``ro``.
        """
        subprocess.run(
            ('mount', '-o', f'remount,bind,{mode}', str(self.state)),
            check=False,
            capture_output=True,
        )

    def fill(self) -> None:
        """Use up the disk of the state directory."""
        file = self.state / 'filler'
        with contextlib.suppress(OSError), file.open('wb', 0) as filler:
            while True:
                filler.write(b'x' * 4096)

    def heal(self) -> None:
        """End all faults that last; the damage that they did remains."""
        wall_clock.jump(self.clock, 0)
        self.remount('rw')
        with contextlib.suppress(OSError):
            (self.state / 'filler').unlink()
        self.restart_libvirtd()
        for who in self.uuids:
            self.create_if_ended(who)

    def create_if_ended(self, who: str) -> None:
        """Start and define a guest if a fault left it otherwise."""
        try:
            domain = self.guest(who)
        except libvirt.libvirtError:
            self.create(who)
            return
        if not domain.isPersistent():
            self.conn.defineXML(self._definitions[who])
        if not domain.isActive():
            self.create(who)

    def clean(self, everything: bool) -> None:
        """Make the host ready for the next round.

        :param everything: start all guests with ``vhpc:`` specs anew, as the
            round failed.
        """
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        self.processes.clear()
        self.heal()
        for who in ('gang', 'quota', 'latency', 'dedicated'):
            if everything or who in self.stale:
                self.restart(who)
        for path in (self.state, self.path / 'run'):
            with contextlib.suppress(OSError):
                for entry in path.iterdir():
                    if entry.is_dir():
                        shutil.rmtree(entry, ignore_errors=True)
                    else:
                        entry.unlink()
        self.log.write_text('')
        self.allowed.clear()
        self.options.clear()

    def wait_for_gang(self, rng: random.Random) -> None:
        """Wait until the agent has written to the gang guest, mostly."""
        if rng.random() < 0.8:
            end = time.monotonic() + 15
            while time.monotonic() < end and self.agent.is_alive():
                if base.everything(self.guest('gang')) != self.before['gang']:
                    break
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.7) ** 2 * 2)
        else:
            time.sleep(rng.uniform(0.1, 1.8))
