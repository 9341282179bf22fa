# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The script of routes is run by a real shell, with a recorder for ``ip``."""

import dataclasses
import os
import pathlib
import subprocess

import fixtures

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import routes

# "ip rule del" fails once there is no such rule.
_IP = """\
#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
case "$*" in *del* | *"$BROKEN"*) exit 2 ;; esac
"""
_ID = """\
#!/bin/sh
echo "$USER_ID"
"""


class RoutesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.members = [
            fakes.member(1, 'h1'),
            fakes.member(2, 'h1'),
            fakes.member(3, 'h2'),
        ]
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def run_(self, network='shared-separate', *arguments):
        """Run the first member's script; return its calls of ``ip``."""
        ended = self.start(*arguments, network=network)
        self.assertEqual((0, ''), (ended.returncode, ended.stderr))
        return self.calls()

    def start(
        self, *arguments, network='shared-separate', user=0, broken='none'
    ):
        """Run the first member's script.

        :param broken: part of the calls of ``ip`` that fail.
        """
        cluster = fakes.cluster(self.members, network)
        text = routes.script(routes.routes(cluster, cluster.members[0]))
        for name, content in (('ip', _IP), ('id', _ID)):
            (self.path / name).write_text(content)
            (self.path / name).chmod(0o755)
        (self.path / 'calls').write_text('')
        (self.path / 'vhpc-routes').write_text(text)
        return subprocess.run(
            ['sh', '-eu', self.path / 'vhpc-routes', *arguments],
            env={
                'PATH': f'{self.path}:{os.environ["PATH"]}',
                'BROKEN': broken,
                'USER_ID': str(user),
            },
            stderr=subprocess.PIPE,
            text=True,
        )

    def calls(self):
        return (self.path / 'calls').read_text().splitlines()

    def test_rules_lead_to_the_peers_on_the_same_host(self):
        # HPCVirt'09 section 4, figure 3.
        self.assertEqual(
            [
                '-4 rule del pref 20090',
                '-6 rule del pref 20090',
                '-4 route replace default via 10.0.0.2 table 20090',
                '-4 rule add pref 20090 to 10.1.0.2/32 lookup 20090',
            ],
            self.run_(),
        )

    def test_each_peer_has_a_table_of_its_own(self):
        self.members[2] = dataclasses.replace(self.members[2], host='h1')
        self.assertEqual(
            [
                '-4 route replace default via 10.0.0.3 table 20091',
                '-4 rule add pref 20090 to 10.1.0.3/32 lookup 20091',
            ],
            self.run_()[-2:],
        )

    def test_route_that_fails_has_no_rule_and_is_told_by_the_status(self):
        self.members[2] = dataclasses.replace(self.members[2], host='h1')
        ended = self.start(broken='via 10.0.0.2 ')
        self.assertEqual(1, ended.returncode)
        self.assertEqual(
            [
                '-4 route replace default via 10.0.0.2 table 20090',
                '-4 route replace default via 10.0.0.3 table 20091',
                '-4 rule add pref 20090 to 10.1.0.3/32 lookup 20091',
            ],
            self.calls()[2:],
        )

    def test_user_without_the_right_is_told_at_once(self):
        for argument in ((), ('stop',)):
            ended = self.start(*argument, user=1000)
            self.assertEqual(1, ended.returncode)
            self.assertIn('only root', ended.stderr)
            self.assertEqual([], self.calls())

    def test_stop_removes_the_rules_only(self):
        calls = self.run_('shared-separate', 'stop')
        self.assertEqual(
            ['-4 rule del pref 20090', '-6 rule del pref 20090'], calls
        )

    def test_rules_of_peers_that_left_are_removed(self):
        removed = ['-4 rule del pref 20090', '-6 rule del pref 20090']
        self.assertEqual(removed, self.run_('separate'))
        # As on OVN, where encap IPs separate the uplinks below one NIC.
        self.members = [
            fakes.member(number, 'h1', nics=1) for number in (1, 2)
        ]
        self.assertEqual(removed, self.run_())
