# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Each problem is logged once, in one line."""

import logging

import libvirt
from oslo_config import cfg
from oslo_log import formatters
from oslo_log import log as oslo_log

from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.lifecycle import restore_queue
from nova_vhpc.conf import log_format
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

WHY = 'that cannot be'


class Lines(logging.Handler):
    """Collects log lines, formatted as the agent does."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        conf = cfg.ConfigOpts()
        oslo_log.register_options(conf)
        conf([], default_config_files=[])
        self.setFormatter(
            log_format.Formatter(formatters.ContextFormatter(config=conf))
        )
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class LogLinesTest(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = Lines()
        package = logging.getLogger('nova_vhpc')
        package.addHandler(self.log)
        self.addCleanup(package.removeHandler, self.log)

    def assert_said_once(self) -> None:
        (line,) = self.log.lines
        self.assertEqual(1, line.count(WHY), line)

    def raise_journal_error(self, *arguments: object) -> None:
        raise JournalError(WHY)

    def test_missing_journal_is_logged_once(self) -> None:
        guest = self.look()
        self.journal.save = self.raise_journal_error
        self.manager.write(guest, model.CpuTune(8_000, 8_000))
        self.drain()
        self.assert_said_once()

    def test_refusal_by_libvirt_is_logged_once(self) -> None:
        def refuse() -> None:
            raise fake_libvirt.error(libvirt.VIR_ERR_INVALID_ARG, WHY)

        guest = self.look()
        self.domain.refuse = refuse
        self.write(guest)
        self.assert_said_once()

    def test_stopped_guest_is_logged_by_name(self) -> None:
        """Nothing else tells later which server the UUID was."""
        self.look()
        self.domain.id = -1
        with self.assertLogs(restore_queue.LOG, 'INFO') as logs:
            self.manager.enqueue('u')
            self.drain()
        self.assertEqual(
            [
                'INFO:nova_vhpc.agent.lifecycle.restore_queue:VM vm: '
                'stopped or migrated away'
            ],
            logs.output,
        )

    def test_refused_guest_is_logged_by_name(self) -> None:
        self.look()
        self.manager._context.guests.refuse('u', WHY)
        self.assertIn(f'VM vm: left alone: {WHY}', self.log.lines[0])

    def test_domain_that_cannot_be_read_is_logged_once(self) -> None:
        self.manager._reconciler._reconcile = self.raise_journal_error
        self.manager.enqueue('u')
        self.drain()
        self.assert_said_once()
