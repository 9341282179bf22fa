# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The whole host is restored, whatever fails for one domain."""

import threading
import time
import types
from typing import Any
from unittest import mock

import fixtures
import libvirt
from oslotest import base

from nova_vhpc.agent.daemon import restore_host
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import connection
from nova_vhpc.agent.restore import recovery
from nova_vhpc.tests.unit.agent import fake_libvirt


class Domain:
    """A running domain that has a metadata copy."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid

    def UUIDString(self) -> str:
        return self.uuid

    def name(self) -> str:
        return f'vm-{self.uuid}'

    def XMLDesc(self, flags: int) -> str:
        return store.METADATA_URI

    def isActive(self) -> bool:
        return self.uuid != 'left'


class Restorer:
    """Restores each domain as the test says."""

    def __init__(self, **outcomes: Any) -> None:
        self.outcomes = outcomes
        self.journal = types.SimpleNamespace(uuids=lambda: tuple(outcomes))
        self.processes = types.SimpleNamespace(
            find=lambda uuid: uuid == 'lost'
        )
        self.forgotten: list[str] = []

    def recover(self, domain: Domain) -> recovery.Outcome:
        outcome = self.outcomes[domain.uuid]
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, threading.Event):
            outcome.wait()
        return recovery.Outcome.RESTORED

    def forget(self, uuid: str) -> None:
        self.forgotten.append(uuid)


class HostRestorerTest(base.BaseTestCase):
    def clean(self, restorer: Restorer, *running: str) -> restore_host.Summary:
        conn = types.SimpleNamespace(
            listAllDomains=lambda flags: [Domain(uuid) for uuid in running],
            getLibVersion=int,
        )
        return restore_host.HostRestorer(restorer).clean(conn)  # type: ignore

    def test_all_are_restored_if_some_fail(self) -> None:
        many = {f'vm{number}': None for number in range(50)}
        restorer = Restorer(
            torn=KeyError('vcpu_quota'),
            refused=fake_libvirt.refused('busy'),
            **many,
        )
        summary = self.clean(restorer, 'torn', 'refused', *many)
        self.assertEqual(set(many), set(summary.restored))
        self.assertEqual({'vm-torn', 'vm-refused'}, set(summary.failed))
        self.assertIn('vcpu_quota', summary.failed['vm-torn'])

    def test_domain_that_hangs_delays_no_other(self) -> None:
        hung = threading.Event()
        self.addCleanup(hung.set)
        many = {f'vm{number}': None for number in range(20)}
        restorer = Restorer(hung=hung, **many)
        with mock.patch.object(restore_host, 'CALL_SECONDS', 0.5):
            summary = self.clean(restorer, 'hung', *many)
        self.assertEqual(set(many), set(summary.restored))
        self.assertEqual(
            {'vm-hung': 'libvirt does not answer'}, summary.failed
        )

    def test_domains_restored_at_a_time_are_limited(self) -> None:
        """libvirtd serves five calls; one is left for the connection."""
        go = threading.Event()
        self.addCleanup(go.set)
        begun = threading.Semaphore(0)

        class Slow(Restorer):
            def recover(self, domain: Domain) -> recovery.Outcome:
                begun.release()
                go.wait(60)
                return super().recover(domain)

        many = {f'vm{number}': None for number in range(12)}
        summaries: list[restore_host.Summary] = []
        cleaning = threading.Thread(
            target=lambda: summaries.append(self.clean(Slow(**many), *many))
        )
        cleaning.start()
        for _ in range(4):
            self.assertTrue(begun.acquire(timeout=60))
        self.assertFalse(begun.acquire(timeout=0.3))
        go.set()
        cleaning.join(60)
        self.assertEqual(set(many), set(summaries[0].restored))

    def test_records_of_domains_that_do_not_run_are_removed(self) -> None:
        restorer = Restorer(here=None, gone=None, lost=None)
        summary = self.clean(restorer, 'here')
        self.assertEqual(['here'], summary.restored)
        self.assertEqual(['gone'], summary.gone)
        self.assertEqual(['gone'], restorer.forgotten)
        self.assertIn('libvirt_uri', summary.failed['lost'])
        self.assertIn('1 restored, 1 gone, 1 failed', summary.text())

    def test_domain_that_ends_meanwhile_counts_as_gone(self) -> None:
        for code in (
            libvirt.VIR_ERR_NO_DOMAIN,
            libvirt.VIR_ERR_OPERATION_INVALID,
        ):
            restorer = Restorer(left=fake_libvirt.error(code))
            summary = self.clean(restorer, 'left')
            self.assertEqual(({}, ['left']), (summary.failed, summary.gone))

    def test_invalid_operation_does_not_count_as_gone(self) -> None:
        code = libvirt.VIR_ERR_OPERATION_INVALID
        restorer = Restorer(u=fake_libvirt.error(code, 'no controller'))
        summary = self.clean(restorer, 'u')
        self.assertEqual({'vm-u': 'no controller'}, summary.failed)
        self.assertEqual([], restorer.forgotten)


class RefusedTest(base.BaseTestCase):
    """libvirtd refuses some domains, as after a restart of its own."""

    def setUp(self) -> None:
        super().setUp()
        self.conns: list[mock.Mock] = []
        self.restore_nics = mock.Mock(return_value={})
        self.useFixture(
            fixtures.MockPatchObject(
                restore_host, 'RETRY_PAUSE_SECONDS', 0.001
            )
        )
        self.useFixture(
            fixtures.MockPatchObject(
                restore_host, '_wait_for', lambda uri: self.connect(True)
            )
        )

    def connect(self, alive: bool) -> mock.Mock:
        conn = mock.Mock()
        conn.listAllDomains.return_value = [Domain('a'), Domain('b')]
        conn.isAlive.return_value = alive
        self.conns.append(conn)
        return conn

    def clean(self, times: int, alive: bool = True) -> restore_host.Summary:
        code = libvirt.VIR_ERR_OPERATION_INVALID
        left = {'b': times}

        class Refusing(Restorer):
            def recover(self, domain: Domain) -> recovery.Outcome:
                if left.get(domain.uuid, 0) > 0:
                    left[domain.uuid] -= 1
                    raise fake_libvirt.error(code, 'no controller')
                if domain.uuid in done:
                    return recovery.Outcome.NOTHING
                done.add(domain.uuid)
                return super().recover(domain)

        done: set[str] = set()
        summary = restore_host._clean(
            self.connect(alive),
            'uri',
            Refusing(a=None, b=None),
            self.restore_nics,
        )
        # Over the connection that still works.
        self.restore_nics.assert_called_with(self.conns[-1])
        return summary

    def test_refused_domain_is_retried(self) -> None:
        summary = self.clean(3)
        self.assertEqual({}, summary.failed)
        self.assertEqual(['a', 'b'], sorted(summary.restored))
        self.assertEqual(1, len(self.conns))

    def test_retries_end(self) -> None:
        with mock.patch.object(restore_host, 'RETRY_SECONDS', 0.05):
            summary = self.clean(10**9)
        self.assertEqual({'vm-b': 'no controller'}, summary.failed)
        self.assertEqual(['a'], summary.restored)

    def test_domain_whose_record_is_kept_is_counted_once(self) -> None:
        restorer = Restorer(a=None, b=fake_libvirt.refused('busy'))
        with mock.patch.object(restore_host, 'RETRY_SECONDS', 0.05):
            summary = restore_host._clean(
                self.connect(True), 'uri', restorer, self.restore_nics
            )
        self.assertIn('1 restored, 0 gone, 1 failed', summary.text())

    def test_retry_uses_a_new_connection_if_the_old_one_ended(self) -> None:
        summary = self.clean(1, alive=False)
        self.assertEqual({}, summary.failed)
        self.assertEqual(2, len(self.conns))

    def test_libvirtd_restart_while_listing_is_retried(
        self,
    ) -> None:
        conn = self.connect(False)
        conn.listAllDomains.side_effect = fake_libvirt.refused('closed')
        summary = restore_host._clean(
            conn, 'uri', Restorer(a=None, b=None), self.restore_nics
        )
        self.assertEqual(['a', 'b'], sorted(summary.restored))
        self.restore_nics.assert_called_once_with(self.conns[1])

    def test_retries_end_if_domains_are_never_listed(self) -> None:
        conn = self.connect(True)
        conn.listAllDomains.side_effect = fake_libvirt.refused('closed')
        with mock.patch.object(restore_host, 'RETRY_SECONDS', 0.05):
            self.assertRaises(
                libvirt.libvirtError,
                restore_host._clean,
                conn,
                'uri',
                Restorer(),
                self.restore_nics,
            )

    def test_nics_are_retried(self) -> None:
        self.restore_nics.side_effect = [{'a': 'closed'}, {}]
        self.assertEqual({}, self.clean(0).failed)
        self.assertEqual(2, self.restore_nics.call_count)

    def test_nics_not_restored_are_reported(self) -> None:
        self.restore_nics.return_value = {'a': 'closed'}
        with mock.patch.object(restore_host, 'RETRY_SECONDS', 0.05):
            self.assertEqual({'a': 'closed'}, self.clean(0).failed)


class WaitForLibvirtTest(base.BaseTestCase):
    def wait(self, *codes: int) -> tuple[Any, str]:
        """Return connection and log if libvirt first gives these errors."""
        errors = [fake_libvirt.refused('refused') for _ in codes]
        for error, code in zip(errors, codes, strict=True):
            error.err = (code, 0, 'refused', 2, None, None, None, 0, 0)
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        with (
            mock.patch.object(
                libvirt, 'open', side_effect=[*errors, mock.Mock()]
            ),
            mock.patch.object(restore_host.time, 'sleep'),
        ):
            return restore_host._wait_for('qemu:///system'), log.output

    def test_libvirt_that_comes_up_is_waited_for(self) -> None:
        away = libvirt.VIR_ERR_SYSTEM_ERROR
        connected, log = self.wait(away, away)
        self.assertIsNotNone(connected)
        self.assertEqual(1, log.count('qemu:///system: refused; will retry'))

    def test_invalid_uri_is_not_waited_for(self) -> None:
        for code in (
            libvirt.VIR_ERR_NO_SUPPORT,
            libvirt.VIR_ERR_NO_CONNECT,
            libvirt.VIR_ERR_INVALID_ARG,
        ):
            connected, log = self.wait(code)
            self.assertIsNone(connected)
            self.assertIn('refused', log)
            self.assertNotIn('will retry', log)

    def test_last_error_is_logged_when_time_runs_out(self) -> None:
        """The log does not say that libvirt hangs, which it does not."""
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))

        def refuse(uri: str) -> Any:
            time.sleep(0.02)
            raise fake_libvirt.refused('refused')

        with (
            mock.patch.object(libvirt, 'open', refuse),
            mock.patch.object(restore_host, 'CONNECT_SECONDS', 0.95),
        ):
            self.assertIsNone(restore_host._wait_for('qemu:///system'))
        self.assertEqual('refused', log.output.splitlines()[-1])

    def test_libvirt_that_hangs_is_given_up(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        hang = threading.Event()
        self.addCleanup(hang.set)
        with (
            mock.patch.object(
                libvirt, 'open', side_effect=lambda uri: hang.wait(10)
            ),
            mock.patch.object(restore_host, 'CONNECT_SECONDS', 0.05),
        ):
            self.assertIsNone(restore_host._wait_for('qemu:///system'))
            # The same error is raised if no time is left at all.
            self.assertRaises(
                connection.AwayError, connection.open_within, 'x', -1.0
            )
        self.assertIn('qemu:///system does not answer', log.output)
        # Nor does the process wait for it in the end.
        self.assertEqual(
            {True},
            {
                thread.daemon
                for thread in threading.enumerate()
                if thread.name == 'libvirt-open'
            },
        )
