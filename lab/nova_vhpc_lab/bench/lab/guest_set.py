# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Start the guests of a mix on a private libvirtd and measure their work."""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import libvirt

from nova_vhpc_lab.bench.lab import mixes, web_client
from nova_vhpc_lab.testbed import (
    cpu_controller,
    errors,
    guest,
    host_load,
    libvirtd,
    other_load,
    parallel_programs,
    patience,
    running_guest,
)
from nova_vhpc_lab.testbed.image import GuestImage

MACHINE_WEIGHT = 4.0
"""CPU weight of all guests together during a measurement.

As a multiple of the default weight, so that other load on the machine disturbs
less.
"""


class GuestSet:
    """The guests of a mix, started once and measured many times.

    :param mix: guests to start.
    :param image: kernel and initramfs of the guests.
    :param cpus: the two host CPUs to use.
    :ivar guests: the running guests by name.
    :ivar web: client of the web guest, or None if the mix has none.
    :ivar root: directory of all files.
    :ivar uri: connection URI of the private libvirtd.
    :ivar overhead_group: control group of the threads that belong to the
        measurement but are not vCPUs.
    :ivar bridge: name of the guests' bridge, or None without network.
    :ivar other_load: measures what something else takes during measurements.
    :raises LabError: this process is not root, or there is no CPU controller.
    """

    _serial = itertools.count()

    def __init__(
        self,
        mix: mixes.Mix,
        image: GuestImage,
        cpus: tuple[int, ...] = (0, 1),
    ) -> None:
        self.mix = mix
        self.cpus = cpus
        self.web: web_client.WebClient | None = None
        self._image = image
        self._stack = contextlib.ExitStack()
        self._tag = f'vl{os.getpid()}x{next(self._serial)}'
        self.guests: dict[str, running_guest.RunningGuest] = {}
        self.root = Path()
        self.uri = ''
        self.overhead_group: Path | None = None
        self.bridge: str | None = None
        self.other_load = other_load.OtherLoadWatch(cpus)
        self._load_group: Path | None = None
        self._connection: Any = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # -- measuring -----------------------------------------------------

    def measure(self, seconds: float) -> dict[str, float]:
        """Return the work per second of each guest.

        :param seconds: length of the measurement.
        """
        with self.other_load.watch():
            before = {n: g.page.read() for n, g in self.guests.items()}
            time.sleep(seconds)
            after = {n: g.page.read() for n, g in self.guests.items()}
        return {
            name: (after[name].work - reading.work)
            / (after[name].when_s - reading.when_s)
            for name, reading in before.items()
        }

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time of each guest's vCPUs since its start.

        :returns: seconds by name.
        :raises LabError: a guest has ended.
        """
        return {
            name: one.schedstat()[0] / 1e9 for name, one in self.guests.items()
        }

    @contextlib.contextmanager
    def host_load(self) -> Any:
        """Put the mix's load on the last CPU for a ``with`` block."""
        with contextlib.ExitStack() as stack:
            if self.mix.host_load:
                stack.enter_context(
                    host_load.busy(self.cpus[-1], self._load_group)
                )
            yield

    @contextlib.contextmanager
    def napping(self) -> Any:
        """Have MPI and OpenMP programs nap while they wait, in a block."""
        self._run_programs(running_guest.NAPPING)
        try:
            yield
        finally:
            self._run_programs(running_guest.SHIPPED)

    def _run_programs(self, mode: int) -> None:
        for one in self.guests.values():
            if one.spec.workload in parallel_programs.LIBRARIES:
                one.page.run_mode(mode, patience.PATIENCE_S)

    @contextlib.contextmanager
    def only(self, names: tuple[str, ...]) -> Any:
        """Suspend all other guests for the duration of a ``with`` block."""
        others = [g for n, g in self.guests.items() if n not in names]
        for other in others:
            other.domain.suspend()
        try:
            yield
        finally:
            for other in others:
                other.domain.resume()

    @contextlib.contextmanager
    def without_quota(self, names: tuple[str, ...]) -> Any:
        """Lift the quotas of these guests for the duration of a block."""
        limited = [
            one
            for name in names
            if (one := self.guests[name]).spec.quota_us is not None
        ]
        live = libvirt.VIR_DOMAIN_AFFECT_LIVE
        for one in limited:
            one.domain.setSchedulerParametersFlags({'vcpu_quota': -1}, live)
        try:
            yield
        finally:
            for one in limited:
                one.domain.setSchedulerParametersFlags(
                    {
                        'vcpu_period': guest.PERIOD_US,
                        'vcpu_quota': one.spec.quota_us,
                    },
                    live,
                )

    @contextlib.contextmanager
    def pinned_apart(self, names: tuple[str, ...]) -> Any:
        """Pin the vCPUs of these guests to one CPU each in a ``with`` block.

        Not by libvirt: a ``<vcpupin>`` would stay in the domain's XML, and an
        agent does not pin guests that are pinned already.
        """
        turn = itertools.cycle(self.cpus)
        with self._placed(
            {
                thread: (self.guests[name], {next(turn)})
                for name in names
                for thread in self.guests[name].vcpu_threads
            }
        ):
            yield

    @contextlib.contextmanager
    def threads_on(
        self, names: Iterable[str], cpu: int | None, *, vcpus: bool = True
    ) -> Any:
        """Run threads of these guests on one CPU in a ``with`` block.

        :param names: names of the guests.
        :param cpu: host CPU; None leaves the threads where they are.
        :param vcpus: whether the vCPUs are moved; if not, all other threads of
            QEMU, which carry packets.
        """
        places: dict[int, tuple[running_guest.RunningGuest, set[int]]] = {}
        if cpu is not None:
            for name in names:
                one = self.guests[name]
                for thread in (
                    one.vcpu_threads if vcpus else one.other_threads()
                ):
                    places[thread] = one, {cpu}
        with self._placed(places):
            yield

    @contextlib.contextmanager
    def _placed(
        self, places: Mapping[int, tuple[running_guest.RunningGuest, set[int]]]
    ) -> Any:
        """Set the CPU affinity of threads, and reset it at the end."""
        try:
            for thread, (one, cpus) in places.items():
                try:
                    os.sched_setaffinity(thread, cpus)
                except ProcessLookupError:
                    if thread in one.vcpu_threads:
                        raise one.ended_error() from None
                    # QEMU's worker threads come and go.
            yield
        finally:
            for thread in places:
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread, set(self.cpus))

    # -- starting ------------------------------------------------------

    def _start(self) -> None:
        controller = check()
        # Everything of the lab is on its CPUs, so that the rest of what these
        # CPUs do is other load.
        self._stack.enter_context(other_load.confined(self.cpus))
        scratch = tempfile.TemporaryDirectory(prefix='nvlab-')
        self.root = Path(self._stack.enter_context(scratch))
        daemon = self._stack.enter_context(
            libvirtd.PrivateLibvirtd(self.root / 'lv')
        )
        self.uri = daemon.uri
        # If this process is killed, the supervisor cleans up.
        daemon.clean_up_at_end('directory', str(self.root))
        bridge = self.bridge = self._bridge(daemon)
        self._connection = libvirt.open(daemon.uri)
        self._stack.callback(self._connection.close)
        self.overhead_group = overhead_group = controller.make_group(
            f'vhpc-lab-{self._tag}', MACHINE_WEIGHT
        )
        daemon.clean_up_at_end('group', str(overhead_group))
        self._stack.callback(controller.remove_group, overhead_group)
        if self.mix.host_load:
            # As heavy as all guests together, as systemd's system.slice is
            # beside machine.slice.
            load_group = self._load_group = controller.make_group(
                f'vhpc-lab-{self._tag}-load', MACHINE_WEIGHT
            )
            daemon.clean_up_at_end('group', str(load_group))
            self._stack.callback(controller.remove_group, load_group)
        for spec in self.mix.guests:
            self._boot(spec, bridge, daemon.run_dir)
        # All libvirtds of the machine share this group, so it keeps its weight
        # only for the duration of the measurement.
        for group in {
            _machine_group(controller, running.pid)
            for running in self.guests.values()
        }:
            self._stack.enter_context(
                controller.temporary_weight(
                    group, MACHINE_WEIGHT, daemon.clean_up_at_end
                )
            )
        for running in self.guests.values():
            self._wait_for_page(running)
            if not controller.unified:
                _move_emulator(controller, running.pid, overhead_group)
            if running.spec.workload == 'web':
                self.web = self._stack.enter_context(
                    web_client.WebClient(self._address(running.spec))
                )
        home = controller.group_of('self') / 'cgroup.procs'
        overhead_pids = [os.getpid()] + ([daemon.pid] if daemon.pid else [])
        for pid in overhead_pids:
            (overhead_group / 'cgroup.procs').write_text(str(pid))
        self._stack.callback(_return_to_group, home)
        self._run_programs(running_guest.SHIPPED)

    def _wait_for_page(self, running: running_guest.RunningGuest) -> None:
        page = running.page
        try:
            page.wait(120)
            if running.spec.workload in parallel_programs.LIBRARIES:
                page.run_mode(running_guest.STOPPED, patience.PATIENCE_S)
        except running_guest.ProgressError as error:
            console = (self.root / f'{running.spec.name}.log').read_text()
            raise errors.LabError(f'{error}: {console[-300:]}') from error
        self._stack.callback(page.close)

    def _boot(
        self, spec: guest.GuestSpec, bridge: str | None, run_dir: Path
    ) -> None:
        name = f'{self._tag}{spec.name}'
        cpuset = ','.join(str(cpu) for cpu in self.cpus)
        domain = self._connection.defineXML(
            guest.domain_xml(
                name,
                self._image,
                vcpus=spec.vcpus,
                memory_mib=spec.memory_mib,
                workload=spec.workload,
                extra_specs=spec.extra_specs,
                bridges=(bridge,) if bridge and spec.network else (),
                console=self.root / f'{spec.name}.log',
                arguments={'net': self._net, **spec.arguments},
                cpuset=cpuset,
                quota_us=spec.quota_us,
            )
        )
        # The domain is persistent, as Nova's are, because the agent compares
        # with the persistent definition.
        domain.create()
        pid = int((run_dir / 'qemu' / f'{name}.pid').read_text())
        self.guests[spec.name] = running_guest.RunningGuest(spec, domain, pid)

    @property
    def _net(self) -> str:
        """First three numbers of the guests' addresses, by process."""
        return f'10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}'

    def _address(self, spec: guest.GuestSpec) -> str:
        rank = int(spec.arguments.get('rank', 0))
        offset = int(spec.arguments.get('net_offset', 0))
        return f'{self._net}.{rank + offset + 2}'

    def _bridge(self, daemon: libvirtd.PrivateLibvirtd) -> str | None:
        """Return the guests' new bridge, or None if they need no network."""
        if not any(spec.network for spec in self.mix.guests):
            return None
        name = f'{self._tag}b'[:15]
        _ip('link', 'add', name, 'type', 'bridge')
        daemon.clean_up_at_end('bridge', name)
        self._stack.callback(_ip, 'link', 'del', name)
        _ip('addr', 'add', f'{self._net}.1/24', 'dev', name)
        _ip('link', 'set', name, 'up')
        return name


def check(wanted: Iterable[mixes.Mix] = ()) -> cpu_controller.CpuController:
    """Check that guests can be started here; return the CPU controller.

    :param wanted: mixes that are to be measured.
    :raises LabError: this process is not root, there is no CPU controller, or
        a mix needs a bridge and ``ip`` is not installed.
    :raises LibvirtdError: libvirtd, virsh or QEMU is not installed.
    """
    if os.geteuid() != 0:
        raise errors.LabError(
            'the lab starts libvirtd and guests: run as root'
        )
    libvirtd.check()
    for mix in wanted:
        if any(spec.network for spec in mix.guests) and not shutil.which('ip'):
            raise errors.LabError(
                f'no ip on this machine, which the mix {mix.name} needs; '
                'install iproute2'
            )
    return cpu_controller.CpuController.find()


def _ip(*arguments: str) -> None:
    done = subprocess.run(['ip', *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise errors.LabError(
            f'ip {" ".join(arguments)} failed: {done.stderr.strip()}'
        )


def _return_to_group(home: Path) -> None:
    """Move this process back to its former control group.

    That group may be gone, because systemd removes an empty group. Then this
    process is moved to the root group when the lab's group is removed.
    """
    with contextlib.suppress(OSError):
        home.write_text(str(os.getpid()))


def _machine_group(controller: cpu_controller.CpuController, pid: int) -> Path:
    """Return the top-level group in which libvirt keeps a guest."""
    inside = controller.group_of(pid).relative_to(controller.root)
    if not inside.parts:
        raise errors.LabError(f'process {pid} is in no group of its own')
    return controller.root / inside.parts[0]


def _move_emulator(
    controller: cpu_controller.CpuController, pid: int, overhead_group: Path
) -> None:
    """Move a guest's emulator threads to the overhead group.

    If they stay in the guest's CPU group, some kernels leave a runnable vCPU
    without CPU for seconds. On cgroup v2 a thread cannot leave its guest's
    groups.
    """
    emulator = controller.group_of(pid)
    if emulator.name != 'emulator':
        emulator = emulator / 'emulator'
    for thread in (emulator / 'tasks').read_text().split():
        with contextlib.suppress(OSError):
            (overhead_group / 'tasks').write_text(thread)
