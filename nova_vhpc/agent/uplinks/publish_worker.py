# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Keeps this host's uplinks in Placement up to date, in a thread."""

import dataclasses
import logging
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent import errors, periodic
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import claims, ml2_bridges
from nova_vhpc.clients import credentials
from nova_vhpc.placement import client as placement_client
from nova_vhpc.placement import provider_tree, publisher, withdrawal
from nova_vhpc.topology import (
    bridge_rules,
    discovery,
    model,
)

LOG = logging.getLogger(__name__)

_NO_CREDENTIALS = (
    '[placement] has no auth_type: set there, as nova.conf of nova-compute '
    'has them, auth_type = password, auth_url, username, password, '
    'project_name, user_domain_name and project_domain_name, or turn off '
    '[vhpc_topology] publish'
)


FIRST_READ_S = 3.0
"""Longest time that a look waits for ovsdb before it was read once."""

MIN_INTERVAL_S = 1.0
"""Shortest time between two looks, while ovsdb changes, in seconds."""


def make_discovery(
    conf: cfg.ConfigOpts,
    ovsdb: connection.Ovsdb | None = None,
) -> discovery.Discovery:
    """Return the discovery of uplinks that ``[vhpc_topology]`` configures.

    :param ovsdb: database of this host's Open vSwitch, None for none.
    :raises ConfigError: an option's value is invalid.
    """
    options = conf.vhpc_topology
    try:
        rules = bridge_rules.parse_rules(options.bridges)
    except ValueError as error:
        raise errors.ConfigError(f'[vhpc_topology] bridges: {error}') from None
    if 'lo' in options.nic_patterns:
        raise errors.ConfigError(
            "[vhpc_topology] nic_patterns: 'lo' is no NIC: frames leave by "
            'another one, whichever the routes choose; name that one'
        )
    return discovery.Discovery(
        rules,
        nic_patterns=options.nic_patterns,
        shared_slots=options.shared_slots,
        default_mbps=options.default_mbps,
        sysfs=Path(options.sysfs),
        open_vswitch=ovsdb.read if ovsdb is not None else lambda: None,
        ml2_bridges=ml2_bridges.Ml2Bridges(options.ml2_config_files).read,
    )


def describe(topology: model.HostTopology) -> str:
    """Return all uplinks of a host in one line, for the log."""
    return (
        ', '.join(
            f'{uplink.bridge}/{uplink.nic} '
            + (f'{uplink.mbps} Mbit/s' if uplink.up else 'down')
            for uplink in topology.uplinks
        )
        or 'none'
    )


class PublishWorker:
    """Discovers this host's uplinks periodically and publishes changes.

    While Placement or the compute node's provider is away, it retries. Each
    change of state is logged once.

    :param conf: with the groups ``vhpc_topology`` and ``placement``.
    :param host: name of the agent's host.
    :param ovsdb: database of this host's Open vSwitch, None for none.
    :raises ConfigError: an option's value is invalid.
    """

    DONE = 'published'
    MESSAGE = 'Published %d uplinks of compute node %s to Placement: %s'

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        ovsdb: connection.Ovsdb | None = None,
    ) -> None:
        self._conf = conf
        self._options = conf.vhpc_topology
        self._host = host
        self._ovsdb = ovsdb
        self._discovery = make_discovery(conf, ovsdb)
        self._thread = periodic.PeriodicThread(
            'vhpc-publish',
            self._run_once,
            lambda: float(self._options.poll_interval),
            min_interval_s=lambda: MIN_INTERVAL_S,
        )
        if ovsdb is not None:
            ovsdb.add_listener(self._thread.wake)
        self._lock = threading.Lock()
        self._state = 'off'
        self._detail = ''
        self._since = time.time()
        self._findings: discovery.Findings | None = None
        self._published: publisher.Published | None = None
        self._published_s: float | None = None
        self._publisher: publisher.Publisher | None = None
        self._client: placement_client.PlacementClient | None = None
        self._sent: model.HostTopology | None = None
        self._stamp = 0
        self._stamped_s = 0.0
        self._verified_s = 0.0

    def start(self) -> None:
        """Start publishing, unless the option ``publish`` is off."""
        if not self._options.publish or self._thread.started:
            return
        self._enter('starting', '')
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop publishing. What was published stays in Placement."""
        self._thread.stop(timeout_s)
        self._enter('off', '')

    def withdrawal(self) -> withdrawal.Withdrawal:
        """Return what removes this host's uplinks from Placement.

        :raises PlacementError: there are no usable credentials.
        """
        return withdrawal.Withdrawal(self._make_client(), *self._node())

    def publication(self) -> claims.Publication | None:
        """Return what Placement has of this host; None before the first time.

        :raises PlacementError: there are no usable credentials.
        """
        with self._lock:
            published, findings = self._published, self._findings
        if published is None or findings is None:
            return None
        self._make_publisher()
        if self._client is None:
            return None
        return claims.Publication(self._client, published, findings.topology)

    def status(self) -> dict[str, Any]:
        """Return what is published, for the status socket."""
        with self._lock:
            findings, published = self._findings, self._published
            published_s = self._published_s
            result: dict[str, Any] = {
                'state': self._state,
                'since': self._since,
                'detail': self._detail,
                'age_s': None
                if published_s is None
                else round(time.monotonic() - published_s, 1),
            }
        result['node'] = published.node if published else None
        result['reserved'] = list(published.reserved) if published else []
        result['ovsdb'] = self._ovsdb.status() if self._ovsdb else None
        result['problems'] = list(findings.problems) if findings else []
        result['notes'] = list(findings.notes) if findings else []
        result['uplinks'] = [
            {
                'bridge': uplink.bridge,
                'nic': uplink.nic,
                'kind': uplink.kind.value,
                'slots': uplink.slots,
                'mbps': uplink.mbps,
                'up': uplink.up,
                'physnet': uplink.physnets[0] if uplink.physnets else None,
                'physnets': list(uplink.physnets),
                'encap_ip': uplink.encap_ip,
                'bond': uplink.bond,
                'rail': uplink.rail,
            }
            for uplink in (findings.topology.uplinks if findings else ())
        ]
        return result

    def _run_once(self) -> None:
        """Publish changes, and log a change of state.

        :raises RetryLater: Placement or the compute node is away.
        """
        try:
            self._publish_changes()
        except provider_tree.NoRootError as error:
            self._fail('no-compute-node', str(error))
            raise periodic.RetryLater from error
        except placement_client.PlacementError as error:
            self._fail('placement-away', str(error))
            raise periodic.RetryLater from error
        except Exception as error:
            self._fail('failed', repr(error))
            raise

    def _publish_changes(self) -> None:
        """Discover the uplinks, and publish them if that is needed.

        It is needed after a change or a failure, and at each
        ``stamp_interval`` and ``verify_interval``.
        """
        if not self._knows_ovsdb():
            return
        findings = self._discover()
        self._report(findings)
        now_s = time.monotonic()
        changed = findings.topology != self._sent
        stamp_s = self._options.stamp_interval
        stale = bool(stamp_s) and now_s - self._stamped_s >= stamp_s
        verify = now_s - self._verified_s >= self._options.verify_interval
        if not (changed or stale or verify or self._state != self.DONE):
            return
        if changed or stale:
            self._stamp = model.stamp(time.time())
        if verify and self._client is not None:
            self._client.forget()
        published = self._publish(findings.topology, self._stamp)
        self._sent = findings.topology
        self._verified_s = now_s
        if changed or stale:
            self._stamped_s = now_s
        with self._lock:
            self._published = published
            self._published_s = time.monotonic()
        if changed or self._state != self.DONE:
            LOG.info(
                self.MESSAGE,
                len(findings.topology.uplinks),
                published.node,
                describe(findings.topology),
            )
        self._enter(self.DONE, '')

    def _knows_ovsdb(self) -> bool:
        """Return whether the bridges of Open vSwitch are known, or there are
        none.

        Until then nothing is published: uplinks that the last agent has
        published would vanish, which servers may have claimed.
        """
        if self._ovsdb is None:
            return True
        if self._findings is None:
            self._ovsdb.wait(FIRST_READ_S)
        # In this order: ovsdb may answer in between.
        problem = self._ovsdb.problem()
        if not self._ovsdb.awaited:
            return True
        self._fail(
            'ovsdb-away',
            f'{problem}. What is in Placement stays as it is until then',
        )
        return False

    def _discover(self) -> discovery.Findings:
        """Return this host's uplinks, and problems with them."""
        findings = self._discovery.discover(self._options.node or self._host)
        problem = self._ovsdb.problem() if self._ovsdb is not None else None
        if problem is None:
            return findings
        return dataclasses.replace(
            findings, problems=(problem, *findings.problems)
        )

    def _publish(
        self, topology: model.HostTopology, stamp: int
    ) -> publisher.Published:
        return self._make_publisher().publish(topology, stamp)

    def _make_publisher(self) -> publisher.Publisher:
        """Return the publisher; make it if there is none.

        Not made in the constructor, because the credentials may need a file
        that does not exist yet.

        :raises PlacementError: there are no usable credentials.
        """
        if self._publisher is None:
            self._client = self._make_client()
            self._publisher = publisher.Publisher(self._client, *self._node())
        return self._publisher

    def _make_client(self) -> placement_client.PlacementClient:
        if not credentials.given(self._conf, 'placement'):
            raise placement_client.PlacementError(_NO_CREDENTIALS)
        try:
            adapter = credentials.adapter(self._conf, 'placement')
        except credentials.UnusableError as error:
            raise placement_client.PlacementError(str(error)) from error
        return placement_client.PlacementClient(
            adapter, credentials.place(self._conf, 'placement')
        )

    def _node(self) -> tuple[list[str], str | None]:
        """Return the compute node's possible names, and its UUID if known."""
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

    def _report(self, findings: discovery.Findings) -> None:
        """Store the findings, and log what the last ones did not say."""
        with self._lock:
            last = self._findings
            self._findings = findings
        for problem in findings.problems:
            if last is None or problem not in last.problems:
                LOG.warning('Uplinks of this host: %s', problem)
        for note in findings.notes:
            if last is None or note not in last.notes:
                LOG.info('Uplinks of this host: %s', note)

    def _fail(self, state: str, detail: str) -> None:
        # The next attempt makes the publisher again, because nova-compute may
        # write its compute_id file at any time.
        self._publisher = None
        if self._enter(state, detail):
            LOG.warning(
                'Uplinks are not published (%s); will retry: %s',
                state,
                detail,
            )

    def _enter(self, state: str, detail: str) -> bool:
        """Set state and detail.

        :returns: whether the state changed.
        """
        with self._lock:
            changed = state != self._state
            self._state, self._detail = state, detail
            if changed:
                self._since = time.time()
        return changed


class DryPublishWorker(PublishWorker):
    """Discovers uplinks and reads Placement, but publishes nothing."""

    DONE = 'dry-run'
    MESSAGE = (
        'Dry run: %d uplinks of compute node %s would be published to '
        'Placement: %s'
    )

    def status(self) -> dict[str, Any]:
        """Return what was discovered, for the status socket.

        The age is None, because nothing is published.
        """
        return super().status() | {'age_s': None}

    def _publish(
        self, topology: model.HostTopology, stamp: int
    ) -> publisher.Published:
        node = self._make_publisher().node()
        return publisher.Published(node, (), (), 0)


def make_publish_worker(
    conf: Any, host: str, ovsdb: connection.Ovsdb | None = None
) -> PublishWorker:
    """Return the publish worker, or that of a dry run, as configured.

    :param host: name of the agent's host.
    :param ovsdb: database of this host's Open vSwitch, None for none.
    :raises ConfigError: an option's value is invalid.
    """
    make = DryPublishWorker if conf.vhpc_agent.dry_run else PublishWorker
    return make(conf, host, ovsdb)
