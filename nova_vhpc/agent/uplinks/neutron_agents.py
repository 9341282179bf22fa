# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The bridges of Neutron's Open vSwitch agent, from Neutron's API.

The agent reports its ``bridge_mappings`` there. It is the way where another
container has the agent's configuration.
"""

import json
import logging
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from keystoneauth1 import adapter as ksa_adapter
from keystoneauth1 import exceptions as ksa_exceptions
from oslo_config import cfg

from nova_vhpc.clients import credentials, failures, neutron
from nova_vhpc.conf import neutron as neutron_conf
from nova_vhpc.topology import open_vswitch

LOG = logging.getLogger(__name__)

_PLACE = failures.Place.of_group(neutron_conf.GROUP)

AGENT_TYPE = 'Open vSwitch agent'

FILE = 'neutron-bridges.json'
"""File below ``[vhpc_agent] state_path`` with the last known bridges."""


class NeutronAgents:
    """Asks Neutron for the bridges of this host's agent, now and then.

    While Neutron is away, what it said last counts, also to the next agent:
    uplinks that servers have claimed must not vanish.

    :param make_adapter: returns an adapter for Neutron; may raise.
    :param hosts: names that this host may have in Neutron.
    :param interval_s: returns the time between two requests, in seconds.
    :param file: keeps the last known bridges; None to keep none.
    """

    def __init__(
        self,
        make_adapter: Callable[[], ksa_adapter.Adapter],
        hosts: Sequence[str],
        interval_s: Callable[[], float],
        file: pathlib.Path | None,
    ) -> None:
        self._make_adapter = make_adapter
        self._hosts = tuple(dict.fromkeys(hosts))
        self._interval_s = interval_s
        self._file = file
        self._adapter: ksa_adapter.Adapter | None = None
        self._ask_s = 0.0
        self._bridges = self._load()
        self.note = ''

    def read(self) -> open_vswitch.NeutronBridges | None:
        """Return the bridges; None if Neutron has never named any.

        Asks Neutron if the last answer is old, which may take long. Why there
        is none is in :attr:`note`.
        """
        if time.monotonic() >= self._ask_s:
            try:
                self._bridges = self._ask()
            except Exception as error:
                # Of an auth plugin, anything.
                self.note = (
                    'bridge mappings are not read from Neutron: '
                    f'{_reason(error, self._adapter)}'
                )
                self._adapter = None
            else:
                self._save()
            self._ask_s = time.monotonic() + self._interval_s()
        return self._bridges

    def _ask(self) -> open_vswitch.NeutronBridges | None:
        if self._adapter is None:
            self._adapter = self._make_adapter()
        agents = neutron.get(
            self._adapter,
            '/agents',
            {'agent_type': AGENT_TYPE, 'host': self._hosts},
        )['agents']
        self.note = ''
        if not agents:
            self.note = (
                f'Neutron has no {AGENT_TYPE} on host '
                f'{" or ".join(self._hosts)}'
            )
            return None
        return _bridges(agents[0]['configurations'])

    def _load(self) -> open_vswitch.NeutronBridges | None:
        if self._file is None:
            return None
        try:
            return _bridges(json.loads(self._file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            LOG.warning('%s is not used: %s', self._file, error)
            return None

    def _save(self) -> None:
        if self._file is None:
            return
        draft = self._file.with_suffix('.tmp')
        try:
            if self._bridges is None:
                self._file.unlink(missing_ok=True)
                return
            draft.write_text(
                json.dumps(
                    {
                        'bridge_mappings': dict(self._bridges.mappings),
                        'integration_bridge': self._bridges.integration,
                    }
                )
            )
            draft.replace(self._file)
        except OSError as error:
            # The journal reports that the directory cannot be written.
            LOG.debug('%s is not written: %s', self._file, error)


def _bridges(configurations: Any) -> open_vswitch.NeutronBridges | None:
    """Return the bridges that an agent has reported; None for no mapping.

    :raises TypeError, AttributeError: that is no report of the agent.
    """
    mappings = {
        str(physnet): str(bridge)
        for physnet, bridge in configurations.get(
            'bridge_mappings', {}
        ).items()
    }
    if not mappings:
        return None
    return open_vswitch.NeutronBridges(
        mappings,
        str(
            configurations.get('integration_bridge')
            or open_vswitch.INTEGRATION_BRIDGE
        ),
    )


def _reason(error: Exception, client: ksa_adapter.Adapter | None) -> str:
    text = failures.reason(error, _PLACE, client)
    if isinstance(error, ksa_exceptions.Forbidden):
        text += (
            " (Neutron's policy get_agent). Or let the agent read the files "
            'of [vhpc_topology] ml2_config_files'
        )
    return text


def make_neutron_agents(
    conf: cfg.ConfigOpts, hosts: Sequence[str]
) -> NeutronAgents | None:
    """Return the source that ``[neutron]`` configures; None without.

    :param hosts: names that this host may have in Neutron.
    """
    group = neutron_conf.GROUP
    if not conf.vhpc_topology.ask_neutron or not credentials.given(
        conf, group
    ):
        return None

    return NeutronAgents(
        lambda: credentials.adapter(conf, group),
        hosts,
        lambda: float(conf.vhpc_topology.verify_interval),
        None
        if conf.vhpc_agent.dry_run
        else pathlib.Path(conf.vhpc_agent.state_path, FILE),
    )
