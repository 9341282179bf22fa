# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The daemon: connects the parts of the agent, starts and stops them."""

import logging
import socket
import time
from typing import Any

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import (
    errors,
    health,
    host_cpus,
    host_lock,
    periodic,
    process_limits,
    tick_result,
)
from nova_vhpc.agent.actuators import libvirt_cputune, window_player
from nova_vhpc.agent.clusters import groups, phase_exchange
from nova_vhpc.agent.daemon import (
    controller_factory,
    status,
    status_socket,
    systemd,
    tick,
)
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.health import watch
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.lifecycle import manager, restore_queue
from nova_vhpc.agent.metrics import endpoint, host_metrics, vm_metrics
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.probes import base, sampler
from nova_vhpc.agent.uplinks import (
    binder,
    claims,
    publish_worker,
    steering,
)
from nova_vhpc.agent.uplinks.binders import base as binder_base
from nova_vhpc.linux import cpus, qemu_process

LOG = logging.getLogger(__name__)

METRICS_PAUSE_S = 0.005
"""Longest time to wait for the end of a tick before more metrics are written,
in seconds."""

HEALTH_INTERVAL_S = 10.0
"""Time between two looks at the health of all parts, and at garbage, in
seconds."""

NO_CLUSTERS = (
    '[vhpc_nova] has neither auth_type nor groups_file: only servers whose '
    'flavor has vhpc:cluster are taken for members of a virtual cluster. Set '
    'auth_type and the credentials of nova-compute there, so that the agent '
    'can ask Nova for server groups'
)
"""Logged at the start, because windows would silently treat each server alone
otherwise."""

RESTORE_SECONDS = 4.0
"""Time to restore guests, of the five seconds from SIGTERM to the exit."""

LEAST_RESTORE_SECONDS = 2.0
"""The same if SIGTERM came while the agent was still loaded."""


class Service:
    """The agent of this host.

    :param conf: with all of the agent's groups registered.
    :param signals: may have caught signals already; made if None.
    :raises AgentError: the agent cannot start; the reason in one line.
    """

    def __init__(
        self, conf: Any, signals: systemd.Signals | None = None
    ) -> None:
        self.conf = conf
        options = conf.vhpc_agent
        self.host_name = options.host or socket.gethostname()
        self.host_cpus = host_cpus.SharedCpus(
            options.cpu_shared_set, options.sys_root, options.cgroup_root
        )
        self.controller = controller_factory.make_controller(
            conf, self.host_cpus.described(), self.host_cpus.missing()
        )
        actuator = libvirt_cputune.load(conf)
        self.journal = store.Journal(options.state_path)
        self.lock = (
            host_lock.Lock(options.run_path)
            if options.dry_run
            else host_lock.Lock(
                options.run_path, self.journal.path, options.libvirt_uri
            )
        )
        self.processes = qemu_process.make_processes(conf)
        self.guest_manager: manager.GuestManager
        self.sampler = sampler.make_sampler(
            conf,
            base.Host(
                options.proc_root, options.sys_root, options.cgroup_root
            ),
            controller_factory.follows_io(conf),
        )
        self.groups = groups.Groups(
            conf, self.host_name, options.period_ms / 1000
        )
        self.ovsdb = connection.make_ovsdb(conf)
        self.publish_worker = publish_worker.make_publish_worker(
            conf, self.host_name, self.ovsdb
        )
        self.phase_exchange = phase_exchange.PhaseExchange(
            conf, self.host_name, self, self.groups, silent=options.dry_run
        )
        if not options.dry_run:
            # The lock needs the directory, which the first start creates.
            self.journal.make_directory()
        self.lock.acquire()
        self.window_player = window_player.WindowPlayer(
            lambda uuid, shares: self.guest_manager.set_shares(uuid, shares),
            place=lambda uuid, cpus: self.guest_manager.place(uuid, cpus),
            note_window=lambda uuids, seconds: self.guest_manager.note_window(
                uuids, seconds
            ),
        )
        self.guest_manager = manager.GuestManager(
            conf,
            self.journal,
            self.processes,
            self.sampler,
            actuator,
            self.host_cpus.usable,
            self.window_player.forget,
        )
        self.binder = self._make_binder()
        self.notifier = systemd.Notifier()
        self.metrics = self._make_metrics()
        self.tick_loop = tick.TickLoop(
            options.period_ms * 1000,
            self.host_cpus.described,
            actuator.limits,
            self.guest_manager,
            self.controller,
            self._cluster_of,
            self.phase_exchange.views,
            (self._act, self.metrics.observe, self._feed),
            self.guest_manager.unmanaged.views,
            self.window_player.late_us,
            self.host_cpus.off,
            self.phase_exchange.slots.table,
        )
        self.server = status_socket.StatusServer(
            status_socket.socket_path(options.run_path),
            int(options.status_socket_mode, 8),
            self.status,
        )
        self._journal_problem = ''
        self._health_watch = watch.HealthWatch()
        self._health_thread = periodic.PeriodicThread(
            'vhpc-health',
            self._watch_health,
            lambda: HEALTH_INTERVAL_S,
            wait_first=True,
        )
        self._started = time.time()
        self.signals = systemd.Signals() if signals is None else signals

    def _make_metrics(self) -> endpoint.Metrics:
        binder = self.binder

        def pause() -> None:
            # A tick that takes all of its period must not hide the metrics.
            self.tick_loop.idle.wait(METRICS_PAUSE_S)

        vms = vm_metrics.VmMetrics(
            lambda: self.guest_manager.guests,
            lambda: self.tick_loop.last,
            dict if binder is None else binder.steered_devices,
            self.conf.vhpc_agent.sys_root,
            pause,
        )
        return endpoint.Metrics(
            host_metrics.HostCollector(
                self._host_document,
                dict if binder is None else binder.claimed,
                pause,
            ),
            vms.text,
        )

    def _make_binder(self) -> binder.UplinkBinder | None:
        """Return what binds guests to their uplinks, or says why not.

        :returns: None if there are no uplinks to claim.
        """
        options = self.conf.vhpc_agent
        if not (options.bind_uplinks or self.conf.vhpc_topology.publish):
            return None
        binders = binder_base.load(self.conf, self.ovsdb)
        return binder.UplinkBinder(
            binders,
            lambda: self.guest_manager.guests,
            lambda: self.guest_manager.connection.get(),
            claims.UplinkClaims(self.publish_worker.publication),
            steering.make_steering(
                self.conf, binders, self.host_name, self.ovsdb
            ),
            enabled=options.bind_uplinks,
            dry_run=options.dry_run,
        )

    # -- control calls: the ``control`` of the phase exchange ----------------

    def status(self) -> dict[str, Any]:
        """Return the status document, see :mod:`.status`."""
        document = self._host_document()
        document['vms'] = status.guest_statuses(
            dict(self.guest_manager.guests),
            self.tick_loop.last,
            self.window_player.status().playing,
        )
        document['health'] = self._health_watch.judge(document)
        return document

    def _host_document(self) -> dict[str, Any]:
        """Return the status document without VMs, with the last health."""
        last = self.tick_loop.last
        return {
            'version': status.VERSION,
            'agent': status.agent_status(
                self.host_name,
                self._started,
                self.tick_loop,
                self.guest_manager,
                self.sampler,
                self.journal,
                self._journal_problem,
            ),
            'workloads': status.workloads(self.guest_manager.guests),
            'windows': status.window_status(
                self.window_player.status(),
                last.plan if last is not None else None,
            ),
            'groups': self.groups.status(),
            'publishing': self.publish_worker.status(),
            'peers': self.phase_exchange.status(),
            'binding': self.binder.status() if self.binder else None,
            'metrics': self.metrics.status(),
            'health': self._health_watch.last,
        }

    def pause(self, wait_s: float) -> dict[str, Any]:
        """Restore all guests and write nothing until :meth:`resume`.

        :param wait_s: longest time to wait for that, in seconds.
        :returns: see :func:`restore_queue.report_restored`.
        """
        LOG.info('Paused: restoring all servers')
        attempts = self.guest_manager.pause()
        # Only after the pause, before which a tick would start windows again.
        self.window_player.play(None)
        return restore_queue.report_restored(attempts, wait_s)

    def resume(self, server: str | None = None) -> dict[str, Any] | None:
        """Manage servers again after a pause, restore or external change.

        :param server: UUID of a server that was restored, or handed back
            after an external change; None for all but those handed back.
        :returns: for one server, see :func:`restore_queue.report_resumed`.
        """
        if server is None:
            LOG.info('Resumed: managing servers again')
            self.guest_manager.resume()
            return None
        return restore_queue.report_resumed(
            server, self.guest_manager.resume_one(server)
        )

    def restore(self, server: str | None, wait_s: float) -> dict[str, Any]:
        """Restore guests, and write nothing to them until :meth:`resume`.

        :param server: UUID of the server; None for all.
        :param wait_s: longest time to wait for that, in seconds.
        :returns: see :func:`restore_queue.report_restored`.
        """
        if server is None:
            return self.pause(wait_s)
        attempt = self.guest_manager.restore_one(server)
        if attempt is None:
            return restore_queue.report_refused(
                server, self.guest_manager.refused.get(server)
            )
        return restore_queue.report_restored({server: attempt}, wait_s)

    # -- start, reload and shutdown ----------------------------------------

    def run(self) -> int:
        """Run until SIGTERM or SIGINT; then restore all guests.

        :returns: exit status of the process; 1 if a guest could not be
            restored, which ``--restore`` must do.
        """
        self.signals.catch()
        if self.signals.stop_s is None:
            self._start()
        else:
            # Only to restore what an earlier agent may have left.
            self._start_restoring()
        while self.signals.stop_s is None:
            if self.signals.wait():
                self._reload()
        return self._shut_down()

    def _start(self) -> None:
        options = self.conf.vhpc_agent
        if not options.dry_run:
            self._journal_problem = self.journal.problem()
            if self._journal_problem:
                LOG.error('%s', self._journal_problem)
        try:
            self.server.start()
        except OSError as error:
            raise errors.AgentError(
                f'{self.server.path}: {error.strerror or error}; '
                '[vhpc_agent]run_path must be a directory that the agent may '
                'write, and no longer than a path of a socket may be'
            ) from None
        if options.metrics_port:
            self.metrics.start(
                options.metrics_host,
                options.metrics_port,
                endpoint.TlsFiles(
                    options.metrics_cert_file,
                    options.metrics_key_file,
                    options.metrics_client_ca_file,
                ),
            )
        self._start_restoring()
        self.groups.start()
        self.publish_worker.start()
        self.phase_exchange.start()
        process_limits.raise_file_limit()
        process_limits.settle_memory()
        self.notifier.ready()
        self.tick_loop.start()
        self._health_thread.start()
        LOG.info(
            'nova-vhpc-agent: host %s, CPUs %s, period %d ms%s',
            self.host_name,
            cpus.format_cpu_set(self.host_cpus.usable()),
            options.period_ms,
            ', dry run: nothing is written' if options.dry_run else '',
        )
        if not (self.groups.uses_nova or self.conf.vhpc_nova.groups_file):
            LOG.warning(NO_CLUSTERS)

    def _start_restoring(self) -> None:
        """Start the parts that find guests and NICs, and can restore them."""
        self.guest_manager.start()
        if self.ovsdb is not None:
            self.ovsdb.start()
        if self.binder is not None:
            self.binder.start()

    def _shut_down(self) -> int:
        is_dry_run = self.guest_manager.dry_run
        LOG.info(
            'Stopping: %s',
            'a dry run, nothing to restore'
            if is_dry_run
            else 'restoring all servers',
        )
        now_s = time.monotonic()
        end_s = max(
            (self.signals.stop_s or now_s) + RESTORE_SECONDS,
            now_s + min(LEAST_RESTORE_SECONDS, RESTORE_SECONDS),
        )
        self.notifier.stopping()
        self._health_thread.stop(0.0)
        self.guest_manager.connection.hurry()
        self.tick_loop.stop(1.0)
        # Restoring sets the shares, too, so the windows need not end in
        # order.
        self.window_player.stop(0.5)
        # In a thread, so that a domain that hangs does not delay the restore
        # of the guests.
        nic_threads = systemd.stop_all(
            () if self.binder is None else (self.binder,), 0.0
        )
        clean = self.guest_manager.stop(max(0.5, end_s - time.monotonic()))
        if systemd.join_all(nic_threads, end_s) or (
            self.binder is not None and self.binder.left
        ):
            clean = is_dry_run
        self.guest_manager.close()
        # These parts hold nothing that must be saved.
        systemd.stop_all(
            (
                self.groups,
                self.publish_worker,
                self.phase_exchange,
                self.metrics,
                *([self.ovsdb] if self.ovsdb is not None else ()),
            ),
            end_s + 0.5,
        )
        self.server.stop()
        if clean:
            LOG.info(
                'Nothing was written'
                if is_dry_run
                else 'All servers have their original settings'
            )
        else:
            LOG.error(
                'Not all servers could be restored in time; run '
                'nova-vhpc-agent --restore'
            )
        self.lock.release()
        return 0 if clean else 1

    def _reload(self) -> None:
        try:
            fresh = self.conf.mutate_config_files()
        except Exception as error:
            # An invalid file must not end the agent.
            LOG.error(
                'Options are not reloaded: %s', conf_package.reason(error)
            )
            return
        if fresh:
            # Otherwise the old reconcile_period, which may be hours, would
            # have to end first.
            self.guest_manager.resync()
        LOG.info(
            'Options are reloaded: %s',
            ', '.join(f'{group}.{name}' for group, name in fresh)
            or 'no change',
        )

    # -- per tick ----------------------------------------------------------

    def _cluster_of(self, guest: Guest) -> str | None:
        info = guest.info
        return self.groups.cluster_of(
            info.uuid, info.specs.cluster, info.project
        )

    def _act(self, result: tick_result.TickResult) -> None:
        if not self.guest_manager.dry_run:
            # Also while paused: the pause may have begun during this tick.
            paused = self.guest_manager.paused
            self.window_player.play(None if paused else result.plan.windows)
        self.phase_exchange.publish(result.plan.clusters)
        self.phase_exchange.slots.publish(
            result.plan.gangs, result.plan.clusters, len(result.view.cpus)
        )
        self.guest_manager.restore_before_migration(self.groups.migrating)
        self.guest_manager.executor.watch()

    def _watch_health(self) -> None:
        process_limits.collect()
        if self._journal_problem:
            self._journal_problem = self.journal.problem()
        judged = self.status()['health']
        self._health_watch.log_changes()
        self.notifier.status(
            '; '.join(health.sentences(judged)) or 'all parts are healthy'
        )

    def _feed(self, result: tick_result.TickResult) -> None:
        self.notifier.feed()
