# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A real Open vSwitch with uplinks, for tests. Needs root."""

import secrets
import time
from collections.abc import Callable

import fixtures
import pyroute2

from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.tests.functional.topology import links
from nova_vhpc_lab.testbed import open_vswitch
from nova_vhpc_lab.testbed.patience import PATIENCE_S


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds.

    :raises TimeoutError: it does not within :data:`PATIENCE_S`.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError('the condition does not hold')
        time.sleep(0.02)


class OvsLab(fixtures.Fixture):
    """Starts Open vSwitch; makes bridges and veth uplinks in it.

    :ivar switch: the Open vSwitch.
    :ivar links: makes links that Open vSwitch does not have.
    """

    def _setUp(self) -> None:
        self.links = self.useFixture(links.Links())
        self.switch = open_vswitch.PrivateOpenVswitch()
        self.switch.__enter__()
        self.addCleanup(self.switch.close)

    def bridge(self, word: str, *nics: str) -> str:
        """Make a bridge with ports; return its name.

        :param word: suffix of the bridge's name, as for :class:`links.Links`.
        """
        name = self.links.name(word)
        self.switch.vsctl(
            'add-br', name, '--', 'set', 'Bridge', name, 'datapath_type=netdev'
        )
        for nic in nics:
            self.switch.vsctl('add-port', name, nic)
        return name

    def veth(self, word: str) -> str:
        """Make a veth pair whose other end ends in ``x``; return its name."""
        name = self.links.name(word)
        ipr = self.links.ipr
        ipr.link('add', ifname=name, kind='veth', peer=name + 'x')
        self.addCleanup(self.links.delete, name)
        for end in (name, name + 'x'):
            self.links.set(end, state='up')
        return name

    def connect(self) -> connection.Ovsdb:
        """Return a connection that has read the database."""
        ovsdb = connection.Ovsdb(self.switch.remote, timeout_s=2.0)
        ovsdb.start()
        self.addCleanup(ovsdb.stop)
        if not ovsdb.wait(PATIENCE_S):
            raise TimeoutError(ovsdb.problem())
        return ovsdb

    def settle(self, ovsdb: connection.Ovsdb) -> None:
        """Wait until a connection has everything that was written before."""
        mark = secrets.token_hex(4)
        self.switch.vsctl('set', 'Open_vSwitch', '.', f'external_ids:m={mark}')

        def arrived() -> bool:
            contents = ovsdb.read()
            return contents is not None and (
                contents.external_ids.get('m') == mark
            )

        wait_for(arrived)

    def address(self, device: str, address: str) -> None:
        """Give an interface an IP address."""
        ipr: pyroute2.IPRoute = self.links.ipr
        ipr.addr(
            'add', index=self.links.index(device), address=address, mask=24
        )

    def patch(self, one: str, other: str) -> None:
        """Connect two bridges."""
        prefix = self.links.prefix
        for here, there in ((one, other), (other, one)):
            port = here + there.removeprefix(prefix)
            peer = there + here.removeprefix(prefix)
            self.switch.vsctl(
                *('add-port', here, port, '--', 'set', 'Interface', port),
                *('type=patch', f'options:peer={peer}'),
            )

    def ovn(self, **options: str) -> None:
        """Set options of ovn-controller."""
        for option, text in options.items():
            key = option.replace('_', '-')
            self.switch.vsctl(
                'set', 'Open_vSwitch', '.', f'external_ids:{key}="{text}"'
            )
