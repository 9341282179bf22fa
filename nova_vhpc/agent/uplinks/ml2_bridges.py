# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The bridges of Neutron's Open vSwitch agent, from its configuration."""

import logging
import os
from collections.abc import Sequence

from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc.topology import open_vswitch

LOG = logging.getLogger(__name__)

_OPTIONS = (
    cfg.StrOpt('bridge_mappings', default=''),
    cfg.StrOpt('integration_bridge', default=open_vswitch.INTEGRATION_BRIDGE),
)


class Ml2Bridges:
    """Reads the agent's configuration files, again when they change.

    :param files: paths; those that do not exist are left out.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._files = tuple(files)
        self._read_state: tuple[object, ...] = ()
        self._bridges: open_vswitch.NeutronBridges | None = None

    def read(self) -> open_vswitch.NeutronBridges | None:
        """Return the bridges; None if there is no file with mappings.

        What was read last is kept while a file is unreadable.
        """
        state = tuple(_state(path) for path in self._files)
        if state != self._read_state:
            self._read_state = state
            try:
                self._bridges = self._parse()
            except (cfg.Error, OSError, ValueError) as error:
                LOG.warning(
                    'Bridge mappings are not read from %s: %s',
                    ', '.join(self._files),
                    conf_package.reason(error),
                )
        return self._bridges

    def _parse(self) -> open_vswitch.NeutronBridges | None:
        files = [path for path in self._files if os.path.exists(path)]
        if not files:
            return None
        conf = cfg.ConfigOpts()
        conf.register_opts(_OPTIONS, group='ovs')
        conf([], default_config_files=files, default_config_dirs=[])
        mappings = open_vswitch.parse_bridge_mappings(conf.ovs.bridge_mappings)
        if not mappings:
            return None
        return open_vswitch.NeutronBridges(
            mappings, conf.ovs.integration_bridge
        )


def _state(path: str) -> object:
    """Return what changes with a file's contents."""
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_size, status.st_mtime_ns
