# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""nova-vhpc-hook, called by the script that libvirt runs."""

import subprocess
import sys
import tempfile
from pathlib import Path

from oslotest import base

from nova_vhpc.agent.journal import store
from nova_vhpc.tests.unit.agent.restore import test_incoming

_SCRIPT = Path(__file__).parents[4] / 'etc/nova-vhpc/libvirt-qemu-hook'
# Not in the first line, as there may be a blank in the path.
_PROGRAM = f"""\
#!/bin/sh
exec '{sys.executable}' -c '
import sys
from nova_vhpc.cli import hook
sys.exit(hook.main())
' "$@"
"""

ARRIVES = ('migrate', 'begin', '-')


class HookTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        place = Path(tempfile.mkdtemp())
        self.program = place / 'nova-vhpc-hook'
        self.write(_PROGRAM)
        self.script = place / 'nova-vhpc'
        self.script.write_text(
            _SCRIPT.read_text().replace(
                '/usr/bin/nova-vhpc-hook', str(self.program)
            )
        )
        self.script.chmod(_SCRIPT.stat().st_mode)

    def write(self, program: str) -> None:
        self.program.write_text(program)
        self.program.chmod(0o755)

    def call(
        self, xml: str, *words: str, name: str = 'vm'
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            (self.script, name, *(words or ARRIVES)),
            input=xml,
            capture_output=True,
            text=True,
            timeout=240,
        )
        # With any other exit code libvirt does not start the VM.
        self.assertEqual(0, done.returncode, done.stderr)
        return done

    def test_xml_is_written_without_the_agents_settings(self) -> None:
        xml = test_incoming.domain(record=test_incoming.copy(is_floating=True))
        for words in (ARRIVES, ('restore', 'begin', '-')):
            done = self.call(xml, *words)
            self.assertNotIn('vcpupin', done.stdout)
            self.assertNotIn(store.METADATA_URI, done.stdout)
            self.assertIn(
                'VM vm: removed the settings of another host', done.stderr
            )

    def test_domain_may_have_any_name(self) -> None:
        # libvirt parses all output as XML, even the help.
        for name in ('--help', '--version', '-x', '--', 'größer & kleiner'):
            self.assertEqual('', self.call('<domain/>', name=name).stdout)
            xml = test_incoming.domain(
                record=test_incoming.copy(is_floating=True)
            )
            self.assertIn('<domain', self.call(xml, name=name).stdout)

    def test_nothing_is_written_without_a_change(self) -> None:
        xml = test_incoming.domain(record=test_incoming.copy(is_floating=True))
        # The hook does not read the rest of its input.
        large = xml + '\n' * 1_000_000
        for words in (
            ('start', 'begin', '-'),
            ('prepare', 'begin', '-'),
            ('reconnect', 'begin', '-'),
            ('release', 'end', '-', 'destroyed'),
        ):
            self.assertEqual('', self.call(large, *words).stdout)
        for quiet in (test_incoming.domain('<shares>1</shares>'), '', '<'):
            self.assertEqual('', self.call(quiet).stdout)

    def test_metadata_copy_that_is_invalid_is_reported(self) -> None:
        done = self.call(test_incoming.domain(record='torn'))
        self.assertEqual('', done.stdout)
        self.assertIn(
            'VM vm: settings of another host stay: metadata of vm', done.stderr
        )

    def test_exit_status_is_always_0(self) -> None:
        text = self.script.read_text()
        self.assertIn(' 30 ', text)
        self.script.write_text(text.replace(' 30 ', ' 0.2 '))
        hangs = '#!/bin/sh\nexec sleep 50\n'
        for broken in ('#!/bin/false\n', '#!/nowhere/python\n', hangs):
            self.write(broken)
            self.assertEqual('', self.call('<domain/>').stdout)
        self.program.unlink()
        self.assertEqual('', self.call('<domain/>').stdout)
        self.assertEqual('', self.call('<domain/>', 'migrate').stdout)
