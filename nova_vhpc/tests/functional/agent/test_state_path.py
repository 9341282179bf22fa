# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""A state directory that other users may write."""

import os
import pathlib

import libvirt

from nova_vhpc.agent.journal import record
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.functional.agent import base

NOBODY = 65534
PARALLEL = {'vhpc:workload': 'parallel'}


class StatePathTest(base.AgentTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.state = self.path / 'state'
        (self.state / 'journal').mkdir(parents=True)

    def plant(self, domain: libvirt.virDomain) -> pathlib.Path:
        """Write a record as another user, for a domain that asked nothing."""
        parameters, *_ = base.everything(domain)
        planted = record.JournalRecord(
            domain.UUIDString(),
            domain.name(),
            qemu_process.Processes().identity(
                domain.UUIDString(), domain.ID()
            ),
            cputune.Cputune(
                {
                    **parameters,
                    'vcpu_period': 1_000_000,
                    'vcpu_quota': 1_000,
                    'cpu_shares': 2,
                },
                (frozenset({1}),) * 2,
                frozenset({0, 1}),
                2,
            ),
            written={'vcpu_period': None, 'vcpu_quota': None},
        )
        file = self.state / 'journal' / f'{planted.uuid}.json'
        file.write_text(planted.to_json())
        os.chown(file, NOBODY, NOBODY)
        return file

    def test_record_of_another_user_changes_no_server(self) -> None:
        victim = self.domain({})
        before = base.everything(victim)
        planted = self.plant(victim)
        agent = self.start_agent()
        self.wait_for(
            lambda: self.log_lines(f'belongs to user {NOBODY}'),
            'the log line',
        )
        self.assertEqual(1, self.stop_agent(agent))
        self.assertEqual(before, base.everything(victim))
        self.assertEqual(1, self.restore())
        self.assertEqual(before, base.everything(victim))
        planted.unlink()
        self.assertEqual(0, self.restore())

    def test_nothing_is_written_while_others_may_write_there(self) -> None:
        server = self.domain(PARALLEL)
        before = base.everything(server)
        self.state.chmod(0o777)
        with self.running():
            self.wait_for(
                lambda: self.log_lines(f'{self.state} has mode 0777'),
                'the log line',
            )
            self.assertEqual(before, base.everything(server))
            self.state.chmod(0o755)
            self.wait_for_write(server)
        self.assertEqual(before, base.everything(server))
