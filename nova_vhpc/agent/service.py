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

"""The daemon: puts the parts together, and ends them in order."""

import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import threading
import time
from types import FrameType
from typing import Any

import libvirt
import stevedore

from nova_vhpc.agent import (
    binding,
    connection,
    cpus,
    domains,
    errors,
    groups,
    guest,
    journal,
    lock,
    loop,
    metrics,
    notify,
    peers,
    policy,
    processes,
    publishing,
    report,
    restore,
    sampler,
    status,
)
from nova_vhpc.agent.actuators import windows
from nova_vhpc.agent.probes import base

LOG = logging.getLogger(__name__)

ACTUATOR_NAMESPACE = 'nova_vhpc.actuators'

RESTORE_SECONDS = 4.0
"""Of the five seconds between SIGTERM and the end."""

RESTORE_CONNECT_SECONDS = 30.0
"""How long ``--restore`` waits for libvirt."""


class Service:
    """One agent.

    :param conf: with all of the agent's groups registered.
    :raises AgentError: when it cannot or must not run; one line.
    """

    def __init__(self, conf: Any) -> None:
        self.conf = conf
        options = conf.vhpc_agent
        self.host_name = options.host or socket.gethostname()
        usable = cpus.usable_cpus(options.cpu_shared_set, options.sys_root)
        self.host_cpus = cpus.host_cpus(usable, options.sys_root)
        self.controller = policy.make_controller(conf, self.host_cpus)
        actuators = load_actuators(conf)
        self.lock = lock.Lock(options.run_path)
        self.journal = journal.Journal(options.state_path)
        self.processes = processes.Processes(
            options.proc_root, options.cgroup_root
        )
        self.domains: domains.Domains
        self.sampler = sampler.make_sampler(
            conf,
            base.Host(
                options.proc_root,
                options.sys_root,
                options.cgroup_root,
                options.period_ms / 1000,
                lambda: self.domains.connection.get(),
            ),
            policy.follows_io(conf),
        )
        self.groups = groups.Groups(conf, self.host_name)
        self.publishing = publishing.PublishWorker(conf, self.host_name)
        self.peers = peers.Peers(conf, self.host_name, self)
        self.lock.acquire()
        self.domains = domains.Domains(
            conf,
            self.journal,
            self.processes,
            self.sampler,
            actuators,
            usable,
        )
        self.binder = (
            binding.UplinkBinder(
                make_plugger(conf),
                lambda: self.domains.guests,
                lambda: self.domains.connection.get(),
                self.publishing.claimed_bridges,
            )
            if options.bind_uplinks
            else None
        )
        self.player = windows.WindowPlayer(self.domains.set_shares)
        self.notifier = notify.Notifier()
        self.metrics = metrics.Metrics(self.status)
        self.loop = loop.Loop(
            options.period_ms * 1000,
            self.host_cpus,
            actuators[0].limits(),
            self.domains,
            self.controller,
            self._cluster_of,
            self.peers.views,
            (self._act, self.metrics.note, self._feed),
            self.domains.neighbours.views,
            self.player.late_us,
        )
        self.server = status.StatusServer(
            status.socket_path(options.run_path),
            int(options.status_socket_mode, 8),
            self.status,
        )
        self._started = time.time()
        self._ending = False
        self._reload = False
        # A signal may be taken by any thread, and only this wakes ours.
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)

    # -- what peers and operators may ask (the ``control`` of Peers) ---------

    def status(self) -> dict[str, Any]:
        """All there is to know, in values that JSON takes."""
        last = self.loop.last
        followed = self.domains
        records = self.journal.uuids()
        return {
            'version': status.VERSION,
            'agent': {
                'host': self.host_name,
                'pid': os.getpid(),
                'started': self._started,
                'period_us': self.loop.period_us,
                'ticks': self.loop.ticks,
                'tick_us': None if last is None else last.took_us,
                'overruns': self.loop.overruns,
                'tick_failures': self.loop.failures,
                'libvirt_up': followed.connection.up,
                'reconnects': followed.connection.reconnects,
                'paused': followed.paused,
                'dry_run': followed.dry_run,
                'foreign_changes': followed.foreign,
                'late_calls': followed.late_calls,
                'cpus': cpus.format_cpu_set(c.id for c in self.host_cpus),
                'probes': self.sampler.names(),
                'effective_min_slice_us': (
                    self.loop.limits.effective_min_slice_us
                ),
                'journal_records': len(records),
                'journal_bytes': self.journal.size_bytes(),
                'refused': dict(followed.refused),
            },
            'vms': status.vm_statuses(dict(followed.guests), last),
            'windows': status.window_status(
                self.player.status(),
                last.plan.windows if last is not None else None,
            ),
            'groups': self.groups.status(),
            'publishing': self.publishing.status(),
            'peers': self.peers.status(),
            'binding': self.binder.status() if self.binder else None,
        }

    def pause(self) -> None:
        """Put all VMs back and write nothing until :meth:`resume`."""
        LOG.info('Paused: all VMs are put back')
        self.player.play(None)
        self.domains.pause()

    def resume(self) -> None:
        """Go on."""
        LOG.info('Resumed')
        self.domains.resume()

    def restore(self, server: str | None) -> dict[str, Any]:
        """Put one VM, or all, back and leave them alone until resume."""
        if server is None:
            self.pause()
            return {'restored': sorted(self.domains.guests)}
        known = self.domains.restore_one(server)
        return {'restored': [server] if known else []}

    # -- life --------------------------------------------------------------

    def run(self) -> int:
        """Work until SIGTERM or SIGINT; then put all back.

        :returns: the process's exit status; 1 if something is left to
            ``--restore``.
        """
        self._catch_signals()
        self._start()
        while not self._ending:
            self._wake_reader.recv(64)
            if self._reload:
                self._reload = False
                self._mutate()
        return self._end()

    def stop(self) -> None:
        """Make :meth:`run` end."""
        self._ending = True
        with contextlib.suppress(BlockingIOError):
            self._wake_writer.send(b'.')

    def _start(self) -> None:
        options = self.conf.vhpc_agent
        try:
            self.journal.prepare()
        except journal.JournalError as error:
            LOG.error('%s', error)
        try:
            self.server.start()
        except OSError as error:
            raise errors.AgentError(
                f'{self.server.path}: {error.strerror}; [vhpc_agent]run_path '
                'must be a directory that the agent may write'
            ) from None
        if options.metrics_port:
            try:
                self.metrics.start(options.metrics_host, options.metrics_port)
            except OSError as error:
                raise errors.AgentError(
                    '[vhpc_agent]metrics_port = '
                    f'{options.metrics_port}: {error.strerror}; allowed: a '
                    'free port, or 0 for none'
                ) from None
        self.domains.start()
        self.groups.start()
        self.publishing.start()
        self.peers.start()
        if self.binder is not None:
            self.binder.start()
        raise_file_limit()
        settle_memory()
        self.notifier.ready()
        self.loop.start()
        LOG.info(
            'nova-vhpc-agent: host %s, CPUs %s, period %d ms%s',
            self.host_name,
            cpus.format_cpu_set(cpu.id for cpu in self.host_cpus),
            options.period_ms,
            ', dry run: nothing is written' if options.dry_run else '',
        )

    def _end(self) -> int:
        LOG.info('Stopping: all VMs are put back')
        end = time.monotonic() + RESTORE_SECONDS
        self.notifier.stopping()
        self.loop.stop(1.0)
        # The journal has the shares, too; windows need not end in order.
        self.player.stop(0.5)
        if self.binder is not None:
            # It needs the connection, which ends with the domains.
            self.binder.stop(0.5)
        clean = self.domains.stop(max(0.5, end - time.monotonic()))
        self._end_others(end + 0.5)
        self.metrics.stop()
        self.server.stop()
        if clean:
            LOG.info('All VMs are as they were')
        else:
            LOG.error(
                'Not all VMs could be put back in time; run '
                'nova-vhpc-agent --restore'
            )
        self.lock.release()
        return 0 if clean else 1

    def _end_others(self, end: float) -> None:
        """Let the parts that talk to services end, all at the same time.

        They run in daemon threads, and hold nothing that must be kept.
        """
        threads = [
            threading.Thread(target=part.stop, daemon=True)
            for part in (self.groups, self.publishing, self.peers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.05, end - time.monotonic()))

    def _catch_signals(self) -> None:
        report.set_up(self.conf, self.status)
        signal.set_wakeup_fd(
            self._wake_writer.fileno(), warn_on_full_buffer=False
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hup)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._ending = True

    def _on_hup(self, number: int, frame: FrameType | None) -> None:
        self._reload = True

    def _mutate(self) -> None:
        try:
            fresh = self.conf.mutate_config_files()
        except Exception as error:
            # A broken file must not take the agent down.
            LOG.error('Options are not read again: %s', error)
            return
        LOG.info(
            'Options are read again: %s',
            ', '.join(f'{group}.{name}' for group, name in fresh)
            or 'no change',
        )

    # -- per tick ----------------------------------------------------------

    def _cluster_of(self, target: guest.Guest) -> str | None:
        info = target.info
        return self.groups.cluster_of(
            info.uuid, info.specs.cluster, info.project
        )

    def _act(self, moment: loop.Moment) -> None:
        if not self.domains.dry_run and not self.domains.paused:
            self.player.play(moment.plan.windows)
        self.peers.publish(moment.plan.clusters)
        self.domains.let_leave(self.groups.migrating)
        self.domains.workers.watch()

    def _feed(self, moment: loop.Moment) -> None:
        self.notifier.feed()


def raise_file_limit() -> None:
    """Each VM keeps a dozen files open; 1024 is soon too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def settle_memory() -> None:
    """What is loaded now stays: keep it out of the garbage collector.

    Without this every full collection walks through all imported modules,
    some 30 ms in the middle of a tick.
    """
    gc.collect()
    gc.freeze()
    # A tick makes thousands of short-lived values, none of them in cycles.
    gc.set_threshold(50_000, 10, 10)


def load_actuators(conf: Any) -> list[Any]:
    """Load the actuators that ``[vhpc_agent]actuators`` names.

    :raises ConfigError: for a name that no one provides, or none at all.
    """
    manager = stevedore.ExtensionManager(ACTUATOR_NAMESPACE)
    allowed = ', '.join(sorted(manager.names()))
    found = []
    for name in conf.vhpc_agent.actuators:
        if name not in manager:
            raise errors.ConfigError(
                f"[vhpc_agent]actuators = '{name}': no such actuator; "
                f'allowed: {allowed}'
            )
        actuator = manager[name].plugin(conf)
        reason = actuator.check()
        if reason is None:
            found.append(actuator)
        else:
            LOG.warning('Actuator %s is not used: %s', name, reason)
    if not found:
        raise errors.ConfigError(
            "[vhpc_agent]actuators = '': nothing could be written; "
            f'allowed: {allowed}'
        )
    return found


def make_plugger(conf: Any) -> binding.Plugger:
    """What moves guests' NICs and puts them back."""
    options = conf.vhpc_agent
    return binding.Plugger(
        binding.BindingJournal(options.state_path),
        processes.Processes(options.proc_root, options.cgroup_root),
    )


def restore_host(conf: Any) -> int:
    """``nova-vhpc-agent --restore``: put all back, then end.

    :returns: 0 if everything is as it was, 1 if not.
    :raises AgentError: the agent itself runs.
    """
    options = conf.vhpc_agent
    guard = lock.Lock(options.run_path)
    guard.acquire()
    records = journal.Journal(options.state_path)
    connection.start_event_loop()
    conn = _wait_for(options.libvirt_uri)
    if conn is None:
        LOG.error(
            'libvirt at %s does not answer; nothing is restored, %d VMs are '
            'in the journal',
            options.libvirt_uri,
            len(records.uuids()),
        )
        return 1
    restorer = restore.Restorer(
        records, processes.Processes(options.proc_root, options.cgroup_root)
    )
    try:
        summary = restorer.clean_all(conn)
        # Also when the option was turned off since.
        summary.failed.update(make_plugger(conf).undo_all(conn))
    except libvirt.libvirtError as error:
        LOG.error('libvirt at %s: %s', options.libvirt_uri, error)
        return 1
    finally:
        guard.release()
    (LOG.error if summary.failed else LOG.info)('Restore: %s', summary.text())
    return 1 if summary.failed else 0


def _wait_for(uri: str) -> Any:
    end = time.monotonic() + RESTORE_CONNECT_SECONDS
    while True:
        try:
            conn = libvirt.open(uri)
            conn.setKeepAlive(
                connection.KEEPALIVE_INTERVAL_S, connection.KEEPALIVE_COUNT
            )
            return conn
        except libvirt.libvirtError as error:
            if time.monotonic() > end:
                LOG.error('%s', error)
                return None
            time.sleep(0.5)
