# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.clusters.unlisted`."""

from oslotest import base

from nova_vhpc.agent.clusters import unlisted


def reason(
    count: int, running: int, host: str | None, was_listed: bool = False
) -> str:
    servers = frozenset(f's{number}' for number in range(count))
    return unlisted.Unlisted('cn1', servers, running, was_listed).reason(
        lambda server: host
    )


class UnlistedTest(base.BaseTestCase):
    def test_listed_before_means_a_cell(self) -> None:
        self.assertIn('cell', reason(2, 3, None, was_listed=True))

    def test_none_listed_means_another_name(self) -> None:
        self.assertIn('set [vhpc_agent]host', reason(2, 2, 'cn1.local'))
        self.assertIn('is [vhpc_agent]host what', reason(2, 2, None))

    def test_some_listed_means_moved_servers(self) -> None:
        text = reason(1, 2, 'cn2')
        self.assertIn('1 of 2', text)
        self.assertIn('it has s0 on cn2', text)

    def test_same_host_is_not_proposed(self) -> None:
        self.assertNotIn('set [vhpc_agent]host', reason(1, 1, 'cn1'))
