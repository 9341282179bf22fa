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


"""The thread that keeps this host's topology in Placement up to date."""

import logging
import random
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

from nova_vhpc.agent.uplinks import uplinks
from nova_vhpc.clients import credentials
from nova_vhpc.placement import client as api
from nova_vhpc.placement import provider_tree, publisher, withdrawal
from nova_vhpc.topology import discovery, model

LOG = logging.getLogger(__name__)

_MAX_BACK_OFF_S = 60.0

_NO_CREDENTIALS = (
    '[placement] has no auth_type: set there, as nova.conf of nova-compute '
    'has them, auth_type = password, auth_url, username, password, '
    'project_name, user_domain_name and project_domain_name, or turn off '
    '[vhpc_topology] publish'
)


class PublishWorker:
    """Looks at the bridges in turn and publishes what changed.

    Placement or the compute node's provider being away is waited out; one
    log line tells of each change of state.

    :param conf: with the groups ``vhpc_topology`` and ``placement``.
    :param host: name of the agent's host.
    :raises ConfigError: when an option has a value that is not allowed.
    """

    DONE = 'published'
    MESSAGE = 'Published %d uplinks of compute node %s to Placement: %s'

    def __init__(self, conf: cfg.ConfigOpts, host: str) -> None:
        self._conf = conf
        self._options = conf.vhpc_topology
        self._host = host
        self._discovery = uplinks.make_discovery(conf)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._state = 'off'
        self._detail = ''
        self._since = time.time()
        self._findings: discovery.Findings | None = None
        self._published: publisher.Published | None = None
        self._published_s: float | None = None
        self._publisher: publisher.Publisher | None = None
        self._client: api.PlacementClient | None = None
        self._sent: model.HostTopology | None = None
        self._stamp = 0
        self._stamped_at = 0.0
        self._verified_at = 0.0

    def start(self) -> None:
        """Start publishing, unless the option ``publish`` is off."""
        if not self._options.publish or self._thread is not None:
            return
        self._stop.clear()
        self._enter('starting', '')
        self._thread = threading.Thread(
            target=self._run, name='vhpc-publish', daemon=True
        )
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop publishing. What was published stays."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            self._thread = None
        self._enter('off', '')

    def withdrawal(self) -> withdrawal.Withdrawal:
        """What takes everything of ours away from Placement.

        :raises PlacementError: when there are no usable credentials.
        """
        return withdrawal.Withdrawal(self._make_client(), *self._node())

    def claimed_bridges(self, server: str) -> tuple[str, ...]:
        """Bridges of the uplinks that a server has claimed on this host.

        Empty before the first publication. Asks Placement: not for ticks.

        :raises PlacementError: when Placement is away or refuses.
        """
        with self._lock:
            published, findings = self._published, self._findings
        if published is None or findings is None:
            return ()
        self._make_publisher()
        if self._client is None:
            return ()
        bridges = {
            model.provider_uuid(
                published.node, uplink.bridge, uplink.nic
            ): uplink.bridge
            for uplink in findings.topology.uplinks
        }
        present = set(bridges.values())
        for name in published.reserved:
            # Its NIC is gone or has another name; the bridge may be there.
            bridge, nic = name.rsplit(':', 2)[1:]
            if bridge in present:
                provider = model.provider_uuid(published.node, bridge, nic)
                bridges[provider] = bridge
        return tuple(
            sorted(
                bridges[provider]
                for provider in self._client.claimed_uplinks(server)
                if provider in bridges
            )
        )

    def status(self) -> dict[str, Any]:
        """What is published, in values that JSON takes."""
        with self._lock:
            findings, published = self._findings, self._published
            at = self._published_s
            result: dict[str, Any] = {
                'state': self._state,
                'since': self._since,
                'detail': self._detail,
                'age_s': None
                if at is None
                else round(time.monotonic() - at, 1),
            }
        result['node'] = published.node if published else None
        result['reserved'] = list(published.reserved) if published else []
        result['problems'] = list(findings.problems) if findings else []
        result['uplinks'] = [
            {
                'bridge': uplink.bridge,
                'nic': uplink.nic,
                'kind': uplink.kind.value,
                'slots': uplink.slots,
                'mbps': uplink.mbps,
                'up': uplink.up,
                'physnet': uplink.physnet,
            }
            for uplink in (findings.topology.uplinks if findings else ())
        ]
        return result

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            failures = 0 if self._attempt() else failures + 1
            self._stop.wait(self._pause_s(failures))

    def _attempt(self) -> bool:
        """One look at the bridges.

        :returns: whether all went well.
        """
        try:
            self._tick()
        except provider_tree.NoRootError as error:
            self._fail('no-compute-node', str(error))
        except api.PlacementError as error:
            self._fail('placement-away', str(error))
        except Exception as error:
            # A daemon's thread must outlive what nobody thought of.
            if self._state != 'failed':
                LOG.exception('Publishing failed; it will be tried again')
            self._fail('failed', repr(error))
        else:
            return True
        return False

    def _pause_s(self, failures: int) -> float:
        interval_s = float(self._options.poll_interval)
        if not failures:
            return interval_s
        back_off_s = min(_MAX_BACK_OFF_S, 2.0 ** min(failures - 1, 10))
        # Thousands of agents must not come back in the same second.
        return back_off_s * random.uniform(0.75, 1.25)

    def _tick(self) -> None:
        findings = self._discovery.discover(self._options.node or self._host)
        self._note_problems(findings)
        now_s = time.monotonic()
        changed = findings.topology != self._sent
        stamp_s = self._options.stamp_interval
        stale = bool(stamp_s) and now_s - self._stamped_at >= stamp_s
        verify = now_s - self._verified_at >= self._options.verify_interval
        if not (changed or stale or verify or self._state != self.DONE):
            return
        if changed or stale:
            self._stamp = model.stamp(time.time())
        if verify and self._client is not None:
            self._client.forget()
        published = self._publish(findings.topology, self._stamp)
        self._sent = findings.topology
        self._verified_at = now_s
        if changed or stale:
            self._stamped_at = now_s
        with self._lock:
            self._published = published
            self._published_s = time.monotonic()
        if changed or self._state != self.DONE:
            LOG.info(
                self.MESSAGE,
                len(findings.topology.uplinks),
                published.node,
                uplinks.describe(findings.topology),
            )
        self._enter(self.DONE, '')

    def _publish(
        self, topology: model.HostTopology, stamp: int
    ) -> publisher.Published:
        return self._make_publisher().publish(topology, stamp)

    def _make_publisher(self) -> publisher.Publisher:
        """Made late: loading credentials may need a file that comes later.

        :raises PlacementError: when there are no usable credentials.
        """
        if self._publisher is None:
            self._client = self._make_client()
            self._publisher = publisher.Publisher(self._client, *self._node())
        return self._publisher

    def _make_client(self) -> api.PlacementClient:
        if not credentials.given(self._conf, 'placement'):
            raise api.PlacementError(_NO_CREDENTIALS)
        try:
            adapter = loading.load_adapter_from_conf_options(
                self._conf,
                'placement',
                session=loading.load_session_from_conf_options(
                    self._conf,
                    'placement',
                    auth=credentials.load(self._conf, 'placement'),
                ),
            )
        except Exception as error:
            raise api.PlacementError(
                f'[placement] of the configuration is unusable: {error}'
            ) from error
        return api.PlacementClient(adapter)

    def _node(self) -> tuple[list[str], str | None]:
        """Names of the compute node, and its uuid if that is to be used."""
        if self._options.node:
            return [self._options.node], None
        names = list(dict.fromkeys([self._host, socket.getfqdn()]))
        return names, self._compute_id()

    def _compute_id(self) -> str | None:
        try:
            text = Path(self._options.compute_id_file).read_text().strip()
            return str(uuid.UUID(text))
        except (OSError, ValueError):
            return None

    def _note_problems(self, findings: discovery.Findings) -> None:
        with self._lock:
            known = self._findings.problems if self._findings else ()
            self._findings = findings
        for problem in findings.problems:
            if problem not in known:
                LOG.warning('[vhpc_topology] bridges: %s', problem)

    def _fail(self, state: str, detail: str) -> None:
        # nova-compute may come up any time with a compute_id file.
        self._publisher = None
        if self._enter(state, detail):
            LOG.warning(
                'Uplinks are not published (%s); trying again: %s',
                state,
                detail,
            )

    def _enter(self, state: str, detail: str) -> bool:
        with self._lock:
            changed = state != self._state
            self._state, self._detail = state, detail
            if changed:
                self._since = time.time()
        return changed
