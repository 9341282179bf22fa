# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The commands of the installation guide, run on a host."""

import pathlib
import re
import subprocess
import textwrap

from nova_vhpc.tests import base
from nova_vhpc.tests.functional.deploy import container
from nova_vhpc.tests.unit.doc import test_commands

TOP = pathlib.Path(__file__).parents[4]
INSTALL = TOP / 'doc/source/install'
ENABLING = TOP / 'doc/source/admin/enabling.rst'
PAGES = (
    INSTALL / 'packages.rst',
    ENABLING,
    INSTALL / 'systemd.rst',
    INSTALL / 'libvirt-hook.rst',
)
"""Pages in the order in which an operator follows them."""

CLASS = re.compile('^:class: host$', re.MULTILINE)


def script() -> str:
    """Return the commands for a host, of all pages."""
    found = []
    for page in PAGES:
        for match in test_commands.BLOCK.finditer(page.read_text()):
            body = textwrap.dedent(match['body'])
            if CLASS.search(body):
                block = f'.. code-block:: console\n\n{match["body"]}'
                block = block.replace(':class: host', '')
                found += test_commands.commands(block)
    return '\n'.join(found)


def configuration() -> str:
    """Return the agent's file that the guide shows."""
    text = ENABLING.read_text()
    start = text.index('   [DEFAULT]')
    return textwrap.dedent(text[start : text.index('Check the host')])


def pack(archive: pathlib.Path) -> None:
    """Pack the files of a clone, or of an unpacked tarball."""
    if (TOP / '.git').exists():
        listing = subprocess.run(
            ['git', '-C', TOP, 'ls-files', '-z'],
            check=True,
            capture_output=True,
        ).stdout
        what = ['--null', '-T', '-']
    else:
        listing = b''
        what = ['--exclude=./.venv*', '--exclude=./.stestr', '.']
    subprocess.run(
        ['tar', '-C', TOP, '-cf', archive, *what], input=listing, check=True
    )


class PagesTest(base.TestCase):
    def test_installation_guide_leads_to_a_running_agent(self) -> None:
        host = self.useFixture(container.Container(container.make_root()))
        host.run('mkdir', '-p', '/root/nova-vhpc', '/etc/nova-vhpc')
        archive = pathlib.Path(host.scratch, 'source.tar')
        pack(archive)
        host.put(archive, '/root/source.tar')
        host.run('tar', '-C', '/root/nova-vhpc', '-xf', '/root/source.tar')
        conf = pathlib.Path(host.scratch, 'nova-vhpc.conf')
        conf.write_text(configuration())
        host.put(conf, '/etc/nova-vhpc/nova-vhpc.conf')

        commands = script()
        self.assertIn('systemctl enable --now nova-vhpc-agent', commands)
        host.run(
            *('env', 'PBR_VERSION=1.0.0', 'PIP_NO_INDEX=1'),
            *('PIP_FIND_LINKS=/wheelhouse', 'bash', '-euxc'),
            f'cd /root/nova-vhpc\n{commands}',
        )

        state = host.run('systemctl', 'is-active', 'nova-vhpc-agent').stdout
        self.assertEqual('active', state.strip())
        mode = host.run('stat', '-c', '%a', '/etc/nova-vhpc/nova-vhpc.conf')
        self.assertEqual('640', mode.stdout.strip())
        hook = '/etc/libvirt/hooks/qemu.d/nova-vhpc'
        told = host.run('cat', hook).stdout
        self.assertIn('hook=/opt/nova-vhpc/bin/nova-vhpc-hook', told)
        # As libvirt asks, of a VM without anything to take out.
        host.run('sh', '-c', f'{hook} vm migrate begin - </dev/null')
