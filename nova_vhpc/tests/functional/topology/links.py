# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Real Linux bridges with veth uplinks, for tests. Needs root."""

import secrets

import fixtures
import pyroute2


class Links(fixtures.Fixture):
    """Makes links with unique names, and deletes them at the end."""

    def _setUp(self) -> None:
        self.prefix = 't' + secrets.token_hex(3)
        self.ipr = pyroute2.IPRoute()
        self.addCleanup(self.ipr.close)

    def name(self, word: str) -> str:
        """Return a unique name for a link.

        :param word: suffix of at most 8 characters; the kernel allows 15.
        """
        return f'{self.prefix}{word}'

    def bridge(self, word: str) -> str:
        """Make a bridge that is up and has no ports; return its name."""
        name = self.name(word)
        self.ipr.link('add', ifname=name, kind='bridge')
        self.addCleanup(self.delete, name)
        self.set(name, state='up')
        return name

    def uplink(self, word: str, bridge: str) -> str:
        """Make a veth pair with one end as a bridge's uplink; return its name.

        The name of the other end, the "switch", is the same with an ``x``.
        """
        name = self.name(word)
        self.ipr.link('add', ifname=name, kind='veth', peer=name + 'x')
        self.addCleanup(self.delete, name)
        self.set(name, state='up', master=self.index(bridge))
        self.set(name + 'x', state='up')
        return name

    def set(self, name: str, **attributes: object) -> None:
        """Change attributes of a link."""
        self.ipr.link('set', index=self.index(name), **attributes)

    def index(self, name: str) -> int:
        """Return the kernel's index of a link."""
        return self.ipr.link_lookup(ifname=name)[0]

    def delete(self, name: str) -> None:
        """Delete a link, if it still exists."""
        for index in self.ipr.link_lookup(ifname=name):
            self.ipr.link('del', index=index)
