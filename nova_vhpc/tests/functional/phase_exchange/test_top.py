# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""nova-vhpc-top on one virtual cluster, whose two hosts have real agents."""

import contextlib
import io
import json
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable

import libvirt

from nova_vhpc.cli import top
from nova_vhpc.tests.functional import rabbitmq
from nova_vhpc.tests.functional.phase_exchange import hosts_case
from nova_vhpc_lab.testbed.patience import PATIENCE_S

CLUSTER = 'weather'
MEMBER = {'vhpc:workload': 'parallel', 'vhpc:cluster': CLUSTER}
PLAIN = {'vhpc:workload': 'parallel'}


class TopTest(hosts_case.HostsTestCase):
    def setUp(self) -> None:
        super().setUp()
        libvirt.registerErrorHandler(lambda context, error: None, None)
        # Outside of the test's directory, because socket paths must be short.
        root = pathlib.Path(tempfile.mkdtemp(prefix='nv-tp-', dir='/tmp'))
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        broker = self.useFixture(rabbitmq.VirtualHostFixture())
        self.a = self.host('top-a', root)
        self.b = self.host('top-b', root)
        for host in (self.a, self.b):
            host.start_guest('member', MEMBER)
            host.start_agent(broker.url)
        self.a.start_guest('plain', PLAIN)

    def top(self, *words: str) -> tuple[int, str, str]:
        """Return exit status and output of a call of nova-vhpc-top."""
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = top.main(
                [
                    *('--once', '--config-file', str(self.a.config)),
                    *('--run-path', str(self.a.path / 'run')),
                    *('--timeout', '30', *words),
                ]
            )
        return code, out.getvalue(), err.getvalue()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.2)
        self.fail(f'timeout while waiting for {what}')

    def wait_for_answers(self) -> None:
        """Wait until both agents answer, and know the cluster."""
        for host in (self.a, self.b):
            self.wait_for(
                lambda host=host: (
                    (host.status().get('peers') or {}).get('state') == 'up'
                    and CLUSTER in host.status()['peers']['clusters']
                ),
                host.name,
            )

    def test_cluster_is_shown_on_all_hosts_and_the_missing_are_named(self):
        self.wait_for_answers()
        hosts = ('--cluster', CLUSTER, '--host', 'top-a', '--host', 'top-b')
        code, out, err = self.top(*hosts)
        self.assertEqual((0, ''), (code, err))
        self.assertIn('2 hosts answer', out)
        self.assertNotIn('  top-a-plain', out)
        for host in ('top-a', 'top-b'):
            (row,) = (x for x in out.splitlines() if f'{host}-member' in x)
            self.assertEqual([f'{host}-member', host], row.split()[:2])
        code, out, _ = self.top(*hosts, '--json')
        self.assertEqual(0, code)
        self.assertEqual({'top-a', 'top-b'}, set(json.loads(out)['hosts']))

        assert self.b.agent is not None
        self.b.agent.terminate()
        self.b.agent.wait()
        code, out, err = self.top(*hosts)
        self.assertEqual((0, ''), (code, err))
        self.assertIn('top-b is missing: ', out)
        self.assertIn('top-a-member', out)
        self.assertNotIn('top-b-member', out)

    def test_cluster_is_found_by_the_agent_of_this_host(self) -> None:
        self.wait_for_answers()
        code, out, err = self.top('--cluster', CLUSTER)
        self.assertEqual((0, ''), (code, err))
        self.assertIn('top-a-member', out)
        self.assertIn('Nova knows no cluster weather', out)
        code, out, err = self.top('--cluster', 'ocean')
        self.assertEqual((1, ''), (code, out))
        (line,) = err.splitlines()
        self.assertIn('no host of cluster ocean is known', line)
        self.assertIn('--host', line)
