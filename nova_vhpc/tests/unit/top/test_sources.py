# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Status documents of a file and of a socket."""

import json
import pathlib
import tempfile

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import sources


class SourcesTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, 'a')

    def read(self, content: str) -> sources.Answers:
        self.path.write_text(content)
        return sources.FileSource(str(self.path)).fetch()

    def test_file_of_one_document_is_read_again(self) -> None:
        document = documents.document()
        found = self.read(json.dumps(document))
        self.assertEqual([document], list(found.documents.values()))
        self.assertEqual(document, found.as_json())

    def test_file_of_many_documents_is_read_again(self) -> None:
        answers = sources.Answers(
            {'c1': documents.document()}, {'c2': 'off'}, ['r'], 'c', True
        )
        found = self.read(json.dumps(answers.as_json()))
        self.assertEqual(answers, found)

    def test_file_that_cannot_be_used_is_named(self) -> None:
        for content in ('', '{', '{"hosts": 3}', '{"hosts": {}}', '[' * 9999):
            with self.subTest(content[:9]):
                error = self.assertRaises(
                    sources.SourceError, self.read, content
                )
                self.assertIn(str(self.path), str(error))
        self.path.unlink()
        self.assertRaises(
            sources.SourceError, sources.FileSource(str(self.path)).fetch
        )

    def test_socket_of_a_running_agent_is_asked(self) -> None:
        document = documents.document()
        server = status_socket.StatusServer(
            str(self.path), 0o600, lambda: document
        )
        server.start()
        self.addCleanup(server.stop)
        found = sources.SocketSource(str(self.path)).fetch()
        self.assertEqual(document, found.as_json())

    def test_silent_socket_says_what_to_check(self) -> None:
        error = self.assertRaises(
            sources.SourceError, sources.SocketSource(str(self.path)).fetch
        )
        self.assertIn(f'{self.path}: ', str(error))
        self.assertIn('is nova-vhpc-agent running', str(error))
