# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""A journal that the disk brings back as it was earlier."""

from nova_vhpc.agent.journal import store
from nova_vhpc.tests.functional.agent import base

PARALLEL = {'vhpc:workload': 'parallel'}


class OldJournalTest(base.AgentTestCase):
    def test_server_is_restored_by_its_metadata(self) -> None:
        server = self.domain(PARALLEL)
        before = base.everything(server)
        agent = self.start_agent(vhpc_control__slice_policy='fixed')
        self.wait_for_write(server)
        journal = store.Journal(str(self.path / 'state'))
        file = journal.path / f'{server.UUIDString()}.json'
        backup = file.read_bytes()
        self.stop_agent(agent)
        self.assertEqual(before, base.everything(server))
        # The next agent journals anew what it writes, and more of it.
        agent = self.start_agent(vhpc_control__slice_policy='fixed')
        self.wait_for_write(server)
        agent.kill()
        agent.join()
        file.write_bytes(backup)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(server))
        self.assertEqual((), journal.uuids())
        self.assertEqual(1, len(self.log_lines('older than the copy')))
