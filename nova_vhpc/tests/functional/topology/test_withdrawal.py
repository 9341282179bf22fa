# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Withdrawing from a real Placement, in process and by the command."""

import pathlib
import signal
import subprocess
import sys

import fixtures

from nova_vhpc.placement import client, publisher, withdrawal
from nova_vhpc.tests.functional.topology import (
    test_publisher,
    test_publishing,
)
from nova_vhpc.tests.functional.topology.test_publisher import A, B, topology
from nova_vhpc.topology import model

EVERYTHING = ('cn1:vhpc', 'cn1:vhpc:br-a:eth1', 'cn1:vhpc:br-b:eth2')


class WithdrawalCase(test_publisher.PlacementCase):
    """Has published providers, and the withdrawal that removes them."""

    def setUp(self) -> None:
        super().setUp()
        self.publisher = publisher.Publisher(self.client, ['cn1'])
        self.away = withdrawal.Withdrawal(self.client, ['cn1'])
        self.publisher.publish(topology(A, B), 77)

    def elsewhere(self) -> list[str]:
        """Return names of the providers outside of the tree of ``cn1``."""
        answer = self.nova('GET', '/resource_providers')
        return sorted(
            provider['name']
            for provider in answer['resource_providers']
            if provider['root_provider_uuid'] != self.root_uuid
        )


class WithdrawalTest(WithdrawalCase):
    def test_providers_are_moved_out_and_then_deleted(self) -> None:
        withdrawn = self.away.move_out()
        self.assertEqual((EVERYTHING, ()), (withdrawn.moved, withdrawn.kept))
        self.assertEqual([], self.names())
        self.assertEqual(frozenset(), self.client.traits(self.root_uuid)[1])
        # A nova-compute that has them in its cache finds the providers, but
        # nothing in them can be claimed.
        self.assertEqual(EVERYTHING, tuple(self.elsewhere()))
        for uplink in (A, B):
            uuid = self.uuid(uplink)
            self.assertEqual({}, self.client.inventories(uuid)[1])
            self.assertEqual(frozenset(), self.client.traits(uuid)[1])
        self.assertEqual((), self.away.delete())
        self.assertEqual([], self.elsewhere())

    def test_next_withdrawal_deletes_what_an_earlier_one_moved(self) -> None:
        self.away.move_out()
        again = withdrawal.Withdrawal(self.client, ['cn1'])
        self.assertEqual(EVERYTHING, again.move_out().moved)
        again.delete()
        self.assertEqual([], self.elsewhere())
        self.assertEqual((), again.move_out().moved)

    def test_interrupted_move_is_completed_by_the_next(self) -> None:
        real = self.client.move

        def move(uuid: str, name: str, parent: str | None) -> None:
            if parent is not None:
                raise KeyboardInterrupt
            real(uuid, name, parent)

        self.client.move = move  # type: ignore[method-assign]
        self.assertRaises(KeyboardInterrupt, self.away.move_out)
        self.client.move = real  # type: ignore[method-assign]
        self.assertEqual(EVERYTHING, self.away.move_out().moved)
        self.assertEqual([], self.names())

    def test_moved_providers_can_be_published_again(self) -> None:
        self.away.move_out()
        published = self.publisher.publish(topology(A), 78)
        self.assertEqual(('cn1:vhpc:br-a:eth1',), published.providers)
        self.assertEqual(list(EVERYTHING), self.names())
        self.assertEqual(4, self.inventory(A, model.UPLINK)['total'])
        self.assertEqual({}, self.client.inventories(self.uuid(B))[1])
        self.assertEqual(0, self.publisher.publish(topology(A), 78).writes)
        # delete() finds no moved providers, and returns those that are left.
        self.assertEqual(EVERYTHING, self.away.delete())
        self.assertEqual(list(EVERYTHING), self.names())

    def test_claimed_provider_is_kept_until_its_server_goes(self) -> None:
        server = self.claim(self.uuid(B))
        withdrawn = self.away.move_out()
        self.assertEqual(EVERYTHING[:2], withdrawn.moved)
        self.assertEqual(EVERYTHING[2:], withdrawn.kept)
        self.assertEqual([EVERYTHING[2]], self.names())
        self.assertEqual(1, self.inventory(B, model.UPLINK)['reserved'])
        self.assertEqual(frozenset(), self.client.traits(self.root_uuid)[1])
        self.assertEqual(EVERYTHING[2:], self.away.delete())
        self.assertEqual([], self.elsewhere())
        # The server is deleted, and the withdrawal runs again, now without
        # the marker provider.
        self.nova('DELETE', f'/allocations/{server}')
        withdrawn = self.away.move_out()
        self.assertEqual((), withdrawn.kept)
        self.assertIn(EVERYTHING[2], withdrawn.moved)
        self.away.delete()
        self.assertEqual([], self.elsewhere() + self.names())

    def test_withdrawal_of_an_unknown_node_does_nothing(self) -> None:
        absent = withdrawal.Withdrawal(self.client, ['cn2', 'cn2.example'])
        withdrawn = absent.move_out()
        self.assertEqual(((), ()), (withdrawn.moved, withdrawn.kept))
        absent.delete()

    def test_providers_are_deleted_if_the_node_has_vanished(self) -> None:
        self.away.move_out()
        self.nova('DELETE', f'/resource_providers/{self.root_uuid}')
        self.assertEqual(EVERYTHING, self.away.move_out().moved)
        self.assertEqual((), self.away.delete())
        self.assertEqual([], self.elsewhere())

    def test_provider_with_a_foreign_child_is_not_deleted(self) -> None:
        self.away.move_out()
        self.nova(
            'POST',
            '/resource_providers',
            name='foreign',
            parent_provider_uuid=self.uuid(A),
        )
        self.assertRaises(client.ConflictError, self.away.delete)
        self.assertIn('foreign', self.elsewhere())


class CommandTest(WithdrawalCase):
    def serve(self) -> None:
        self.served = test_publishing.serve(self)
        self.endpoint = f'http://127.0.0.1:{self.served.port}'

    def start(self, wait_s: int) -> subprocess.Popen[str]:
        folder = self.useFixture(fixtures.TempDir()).path
        config = pathlib.Path(folder, 'nova-vhpc.conf')
        config.write_text(
            f'[vhpc_agent]\nstate_path={folder}\nrun_path={folder}\n'
            '[vhpc_topology]\nnode = cn1\n[placement]\nauth_type = none\n'
            f'endpoint_override = {self.endpoint}\n'
        )
        process = subprocess.Popen(
            (
                *(sys.executable, '-m', 'nova_vhpc.cli.agent'),
                *('--config-file', str(config), '--withdraw'),
                *('--withdraw-wait', str(wait_s)),
            ),
            stderr=subprocess.PIPE,
            text=True,
            # A background job of a shell ignores SIGINT, and so would this.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_withdraw_removes_all_providers(self) -> None:
        process = self.start(1)
        _, messages = process.communicate(timeout=60)
        self.assertEqual(0, process.returncode, messages)
        self.assertEqual(2, len(messages.splitlines()), messages)
        self.assertEqual([], self.names() + self.elsewhere())

    def test_interrupted_withdraw_is_completed_by_the_next(self) -> None:
        process = self.start(600)
        assert process.stderr is not None
        self.assertIn('in 600 s', process.stderr.readline())
        self.assertEqual(EVERYTHING, tuple(self.elsewhere()))
        process.send_signal(signal.SIGINT)
        self.assertEqual('', process.communicate(timeout=60)[1])
        self.assertEqual(128 + signal.SIGINT, process.returncode)
        self.start(0).communicate(timeout=60)
        self.assertEqual([], self.names() + self.elsewhere())
