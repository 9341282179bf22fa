# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Every message that the troubleshooting page quotes is one of ours."""

import ast
import pathlib
import re

from nova.api.metadata import vendordata_dynamic

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.doc import test_commands

PAGE = test_commands.TOP / 'doc/source/admin/troubleshooting.rst'
QUOTE = re.compile('"([^"]+)"')


def texts(source):
    """Strings of a program, with a blank where an f-string puts a value."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield ''.join(
                part.value if isinstance(part, ast.Constant) else ' '
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def pattern(quoted):
    """What a quoted message matches; ``...`` stands for what varies."""
    return '.*'.join(
        re.escape(part.strip())
        for part in ' '.join(quoted.split()).split('...')
    )


class MessagesTest(base.TestCase):
    def test_messages_exist(self):
        files = [
            file
            for file in (test_commands.TOP / 'nova_vhpc').rglob('*.py')
            if 'tests' not in file.parts
        ]
        files.append(pathlib.Path(vendordata_dynamic.__file__))
        known = [text for file in files for text in texts(file.read_text())]
        quoted = QUOTE.findall(PAGE.read_text())
        self.assertGreater(len(quoted), 5)
        self.assertEqual(
            [],
            [
                message
                for message in quoted
                if not any(re.search(pattern(message), text) for text in known)
            ],
        )
