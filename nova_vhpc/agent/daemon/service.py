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

import logging
import socket
import time
from typing import Any

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import errors, host_cpus, host_lock, process_limits
from nova_vhpc.agent.actuators import loader, window_player
from nova_vhpc.agent.clusters import groups, phase_exchange
from nova_vhpc.agent.daemon import (
    controller_factory,
    guru_report,
    metrics,
    shutdown,
    signals,
    status,
    status_socket,
    systemd,
    tick,
)
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.lifecycle import manager, put_back
from nova_vhpc.agent.probes import base, sampler
from nova_vhpc.agent.uplinks import binder, claims, dry_run
from nova_vhpc.linux import cpus, qemu_process

LOG = logging.getLogger(__name__)

RESTORE_SECONDS = 4.0
"""Of the five seconds between SIGTERM and the end."""


class Service:
    """One agent.

    :param conf: with all of the agent's groups registered.
    :raises AgentError: when it cannot or must not run; one line.
    """

    def __init__(self, conf: Any) -> None:
        self.conf = conf
        options = conf.vhpc_agent
        self.host_name = options.host or socket.gethostname()
        self.host_cpus = host_cpus.SharedCpus(
            options.cpu_shared_set, options.sys_root
        )
        self.controller = controller_factory.make_controller(
            conf, self.host_cpus.described(), self.host_cpus.missing()
        )
        actuators = loader.load_actuators(conf)
        self.journal = store.Journal(options.state_path)
        self.lock = host_lock.Lock(
            options.run_path, None if options.dry_run else self.journal.path
        )
        self.processes = qemu_process.make_processes(conf)
        self.domains: manager.Domains
        self.sampler = sampler.make_sampler(
            conf,
            base.Host(
                options.proc_root,
                options.sys_root,
                options.cgroup_root,
                options.period_ms / 1000,
                lambda: self.domains.connection.get(),
            ),
            controller_factory.follows_io(conf),
        )
        self.groups = groups.Groups(
            conf, self.host_name, options.period_ms / 1000
        )
        self.publish_worker = dry_run.make_publish_worker(conf, self.host_name)
        self.phase_exchange = phase_exchange.PhaseExchange(
            conf, self.host_name, self, silent=options.dry_run
        )
        if not options.dry_run:
            # At the first start there would be nothing to lock.
            self.journal.make_directory()
        self.lock.acquire()
        self.domains = manager.Domains(
            conf,
            self.journal,
            self.processes,
            self.sampler,
            actuators,
            self.host_cpus.usable,
        )
        self.binder = (
            binder.UplinkBinder(
                dry_run.make_plugger(conf),
                lambda: self.domains.guests,
                lambda: self.domains.connection.get(),
                claims.UplinkClaims(self.publish_worker.publication),
            )
            if options.bind_uplinks
            else None
        )
        self.window_player = window_player.WindowPlayer(
            self.domains.set_shares
        )
        self.domains.tell_of_shares(self.window_player.forget)
        self.notifier = systemd.Notifier()
        self.metrics = metrics.Metrics(self.status)
        self.tick_loop = tick.TickLoop(
            options.period_ms * 1000,
            self.host_cpus.described,
            actuators[0].limits(),
            self.domains,
            self.controller,
            self._cluster_of,
            self.phase_exchange.views,
            (self._act, self.metrics.observe, self._feed),
            self.domains.neighbours.views,
            self.window_player.late_us,
            self.host_cpus.off,
        )
        self.server = status_socket.StatusServer(
            status_socket.socket_path(options.run_path),
            int(options.status_socket_mode, 8),
            self.status,
        )
        self._started = time.time()
        self.signals = signals.Signals()

    # -- what peers and operators may ask (the ``control`` of Peers) ---------

    def status(self) -> dict[str, Any]:
        """All there is to know, in values that JSON takes."""
        last = self.tick_loop.last
        return {
            'version': status.VERSION,
            'agent': status.agent_status(
                self.host_name,
                self._started,
                self.tick_loop,
                self.domains,
                self.sampler,
                self.journal,
            ),
            'vms': status.guest_statuses(dict(self.domains.guests), last),
            'windows': status.window_status(
                self.window_player.status(),
                last.plan.windows if last is not None else None,
            ),
            'groups': self.groups.status(),
            'publishing': self.publish_worker.status(),
            'peers': self.phase_exchange.status(),
            'binding': self.binder.status() if self.binder else None,
        }

    def pause(self, wait_s: float) -> dict[str, Any]:
        """Put all VMs back and write nothing until :meth:`resume`.

        :param wait_s: how long to wait until that is done.
        :returns: see :func:`put_back.report`.
        """
        LOG.info('Paused: all VMs are put back')
        tries = self.domains.pause()
        # Not before: a tick in between would have them played again.
        self.window_player.play(None)
        return put_back.report(tries, wait_s)

    def resume(self) -> None:
        """Go on."""
        LOG.info('Resumed')
        self.domains.resume()

    def restore(self, server: str | None, wait_s: float) -> dict[str, Any]:
        """Put one VM, or all, back and leave them alone until resume.

        :param wait_s: how long to wait until that is done.
        :returns: see :func:`put_back.report`.
        """
        if server is None:
            return self.pause(wait_s)
        tried = self.domains.restore_one(server)
        if tried is None:
            return put_back.refused(server, self.domains.refused.get(server))
        return put_back.report({server: tried}, wait_s)

    # -- life --------------------------------------------------------------

    def run(self) -> int:
        """Work until SIGTERM or SIGINT; then put all back.

        :returns: the process's exit status; 1 if something is left to
            ``--restore``.
        """
        guru_report.set_up(self.conf, self.status)
        self.signals.catch()
        self._start()
        while not self.signals.ending:
            if self.signals.wait():
                self._mutate()
        return self._end()

    def _start(self) -> None:
        options = self.conf.vhpc_agent
        if not options.dry_run:
            problem = self.journal.problem()
            if problem:
                LOG.error('%s', problem)
        try:
            self.server.start()
        except OSError as error:
            raise errors.AgentError(
                f'{self.server.path}: {error.strerror or error}; '
                '[vhpc_agent]run_path must be a directory that the agent may '
                'write, and no longer than a path of a socket may be'
            ) from None
        if options.metrics_port:
            try:
                self.metrics.start(options.metrics_host, options.metrics_port)
            except OSError as error:
                raise errors.AgentError(
                    f'[vhpc_agent]metrics_host = {options.metrics_host}, '
                    f'metrics_port = {options.metrics_port}: '
                    f"{error.strerror or error}; allowed: this host's own "
                    'address and a free port, or port 0 for none'
                ) from None
        self.domains.start()
        self.groups.start()
        self.publish_worker.start()
        self.phase_exchange.start()
        if self.binder is not None:
            self.binder.start()
        process_limits.raise_file_limit()
        process_limits.settle_memory()
        self.notifier.ready()
        self.tick_loop.start()
        LOG.info(
            'nova-vhpc-agent: host %s, CPUs %s, period %d ms%s',
            self.host_name,
            cpus.format_cpu_set(self.host_cpus.usable()),
            options.period_ms,
            ', dry run: nothing is written' if options.dry_run else '',
        )

    def _end(self) -> int:
        dry = self.domains.dry_run
        LOG.info('Stopping: %s', 'a dry run' if dry else 'VMs are put back')
        end = time.monotonic() + RESTORE_SECONDS
        self.notifier.stopping()
        self.domains.connection.hurry()
        self.tick_loop.stop(1.0)
        # The journal has the shares, too; windows need not end in order.
        self.window_player.stop(0.5)
        # Beside the VMs: one that hangs must hold up no other.
        nics = shutdown.stop_all(
            () if self.binder is None else (self.binder,), 0.0
        )
        clean = self.domains.stop(max(0.5, end - time.monotonic()))
        if shutdown.join_all(nics, end) or (
            self.binder is not None and self.binder.left
        ):
            clean = dry
        self.domains.close()
        # They hold nothing that must be kept.
        shutdown.stop_all(
            (
                self.groups,
                self.publish_worker,
                self.phase_exchange,
                self.metrics,
            ),
            end + 0.5,
        )
        self.server.stop()
        if clean:
            LOG.info(
                'Nothing was written' if dry else 'All VMs are as they were'
            )
        else:
            LOG.error(
                'Not all could be put back in time; run '
                'nova-vhpc-agent --restore'
            )
        self.lock.release()
        return 0 if clean else 1

    def _mutate(self) -> None:
        try:
            fresh = self.conf.mutate_config_files()
        except Exception as error:
            # A broken file must not take the agent down.
            why = conf_package.reason(error)
            LOG.error('Options are not read again: %s', why)
            return
        if fresh:
            # Else the old reconcile_period, hours maybe, has to end first.
            self.domains.reconcile()
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

    def _act(self, result: tick.TickResult) -> None:
        if not self.domains.dry_run:
            # Also while paused: a pause may come just after it was asked.
            paused = self.domains.paused
            self.window_player.play(None if paused else result.plan.windows)
        self.phase_exchange.publish(result.plan.clusters)
        self.domains.let_leave(self.groups.migrating)
        self.domains.workers.watch()

    def _feed(self, result: tick.TickResult) -> None:
        self.notifier.feed()
