# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Agents that have a phase exchange and nothing else, for tests."""

import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent.clusters import phase_exchange
from nova_vhpc.conf import control as control_opts
from nova_vhpc.conf import peers as peers_opts
from nova_vhpc.control.model import ClusterPlan, GangDemand, Phase

IO = ClusterPlan(Phase.IO)
QUIET = ClusterPlan(Phase.COMPUTING)


def make_conf(
    url: str, slot_us: int | None = None, **options: object
) -> cfg.ConfigOpts:
    """Return an agent's configuration."""
    conf = cfg.ConfigOpts()
    peers_opts.register_opts(conf)
    control_opts.register_opts(conf)
    conf([], project='nova-vhpc', default_config_files=[])
    # oslo.messaging registers its options on first use.
    from nova_vhpc.agent.rpc.native_threads import messaging

    messaging.get_rpc_transport(conf, url=url).cleanup()
    conf.set_override('transport_url', url)
    if slot_us is not None:
        conf.set_override('gang_window_us', slot_us, 'vhpc_control')
    for name, value in options.items():
        conf.set_override(name, value, 'vhpc_peers')
    return conf


def wait_for(condition: Callable[[], object], timeout_s: float = 60) -> bool:
    """Return whether ``condition()`` becomes true within ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


class FakeControl:
    """Records the control calls that the agent would handle."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def status(self) -> dict[str, Any]:
        return {'vms': [{'uuid': 'x'}]}

    def pause(self, wait_s: float) -> dict[str, Any]:
        self.calls.append('pause')
        return {'restored': [], 'failed': {}, 'unknown': []}

    def resume(self, server: str | None) -> None:
        self.calls.append('resume' if server is None else ('resume', server))

    def restore(self, server: str | None, wait_s: float) -> dict[str, Any]:
        self.calls.append(('restore', server))
        if server == 'missing':
            raise LookupError('no server missing on this host')
        return {'restored': [server], 'failed': {}, 'unknown': []}


class Agent:
    """One host that ticks every 100 ms, as the real agent does."""

    def __init__(
        self,
        url: str,
        host: str,
        *,
        silent: bool = False,
        slot_us: int | None = None,
        **options: object,
    ) -> None:
        self.control = FakeControl()
        self.phase_exchange = phase_exchange.PhaseExchange(
            make_conf(url, slot_us, **options),
            host,
            self.control,
            silent=silent,
        )
        self.statements: dict[str, ClusterPlan] = {}
        self.gangs: tuple[GangDemand, ...] = ()
        self.slowest_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def start(self, **statements: ClusterPlan) -> 'Agent':
        self.statements = statements
        self.phase_exchange.start()
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5)
        self.phase_exchange.stop()

    def say(self, **statements: ClusterPlan) -> None:
        """Publish a decision now, without waiting for the tick."""
        self.statements = statements
        self.phase_exchange.publish(statements)

    def io(self, cluster: str) -> bool:
        """Whether the cluster is in the I/O phase as this host sees it."""
        view = self.phase_exchange.views().get(cluster)
        own = self.statements.get(cluster, QUIET)
        return own.phase is Phase.IO or (view is not None and view.io)

    def listens(self, cluster: str) -> bool:
        return cluster in self.phase_exchange.status()['listening']

    def _tick(self) -> None:
        while not self._stop.wait(0.1):
            begin = time.monotonic()
            self.phase_exchange.publish(self.statements)
            self.phase_exchange.views()
            self.phase_exchange.slots.publish(self.gangs, self.statements, 8)
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
