# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Every command in README and docs is run or marked as needing a cloud."""

import argparse
import contextlib
import importlib
import io
import itertools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import tomllib

from nova_vhpc.cli import launch
from nova_vhpc.tests import base
from nova_vhpc.vendordata.guest import hosts_program
from nova_vhpc_lab import cli as bench

TOP = pathlib.Path(__file__).parents[4]
BLOCK = re.compile(
    r'^(?P<indent> *)\.\. code-block:: console\n'
    r'(?P<body>(?:\n|(?P=indent) +.*\n)+)',
    re.MULTILINE,
)
LITERAL = re.compile(
    r'^(?P<indent> *)(?:(?!\.\. ).*::'
    r'|\.\. (?:code-block|code|sourcecode):: *(?!console)\w*)\n'
    r'(?P<body>(?:\n|(?P=indent) +.*\n)+)',
    re.MULTILINE,
)
PROGRAM = re.compile(
    r'^(?:[$#] )?(?:sudo )?(?:apt|apt-get|bash|cd|curl|devstack|dnf|git'
    r'|install|ip|mpiexec|mpirun|(?:\S*/)?nova-[a-z-]+|openstack|oslo-\S+|pip'
    r'|python3?|rabbitmqctl|sed|systemctl|tools/\S+|tox|virsh)(?: |$)',
    re.MULTILINE,
)
SHELL = re.compile(r'[0-9]?[<>|&;].*')
"""What ends a program's own arguments."""
TIMEOUT_S = 240
INLINE = re.compile(r'``nova-vhpc-([a-z]+)\s+([^`]+)``')
"""A program of ours with its arguments, in a sentence."""
OSLO_CONFIG = ('agent', 'status', 'vendordata')
"""Programs whose command line oslo.config reads."""


def pages():
    """README and the pages of the docs."""
    return [TOP / 'README.rst', *sorted((TOP / 'doc/source').rglob('*.rst'))]


def commands(text, cloud=False):
    """Commands of the ``console`` blocks that need no cloud, or of others.

    Lines that end in a backslash go on; other lines are output.

    :param cloud: yield the commands that cannot run here.
    """
    for match in BLOCK.finditer(text):
        body = textwrap.dedent(match['body'])
        # Those of class "host" run in a container (functional/deploy).
        marked = re.search('^:class: (?:cloud|host)$', body, re.MULTILINE)
        if bool(marked) != cloud:
            continue
        command = None
        for line in body.splitlines():
            if command is not None and command.endswith('\\'):
                command = command[:-1] + line.strip()
            elif line.startswith(('$ ', '# ')):
                command = line[2:]
            else:
                continue
            if not command.endswith('\\'):
                yield command


def complaint(program, words):
    """Return what a program says against its arguments; mostly nothing."""
    # The program for guests is none of the installed ones.
    parser = make_parser(program)
    if program in OSLO_CONFIG:
        # Its parser only fills the values of its own ConfigOpts.
        options = {w.partition('=')[0] for w in words if w.startswith('-')}
        unknown = options - set(re.findall(r'--[\w-]+', parser.format_help()))
        return ' '.join(unknown)
    return refusal(parser, words)


def make_parser(program):
    """Return the parser of a program."""
    if program == 'hosts':
        return hosts_program.make_parser()
    if program == 'bench':
        return bench.make_parser()
    return launch.make_parser(program)


def unknown_options(program, words):
    """Return the options that a program, or its command, does not have.

    Other arguments may be missing: sentences name what they are about.

    :param words: ``COMMAND`` among them stands for each command.
    """
    parsers = [make_parser(program)]
    for word in words:
        parsers += [
            command
            for action in parsers[-1]._actions
            if isinstance(action, argparse._SubParsersAction)
            for name, command in action.choices.items()
            if word in (name, 'COMMAND')
        ]
    options = set(re.findall(r'--[\w-]+', parsers[0].format_help()))
    options.update(*(parser._option_string_actions for parser in parsers))
    return {
        name
        for word in words
        for name in [word.partition('=')[0]]
        if name.startswith('--') and name not in options
    }


def plugin_complaint(words):
    """Return what a command of the openstack client says, in the same way."""
    project = tomllib.loads((TOP / 'pyproject.toml').read_text())['project']
    known = project['entry-points']['openstack.vhpc.v1']
    for end in range(len(words), 0, -1):
        path = known.get('_'.join(words[:end]))
        if path is not None:
            module, _, name = path.partition(':')
            command = getattr(importlib.import_module(module), name)
            parser = command(None, None).get_parser(' '.join(words[:end]))
            return refusal(parser, words[end:])
    return 'no such command'


def refusal(parser, words):
    """Return what a parser prints against arguments; mostly nothing."""
    error = io.StringIO()
    with (
        contextlib.redirect_stderr(error),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            parser.parse_args(words)
        except SystemExit as stop:
            return error.getvalue() if stop.code else ''
    return ''


class CommandsTest(base.TestCase):
    def test_blocks_are_told_apart(self):
        text = textwrap.dedent("""\
            Text

            .. code-block:: console

               $ one \\
                   --more
               output
               # two

            .. code-block:: console
               :class: cloud

               $ three

            .. code-block:: ini

               $ four
            """)
        self.assertEqual(['one --more', 'two'], list(commands(text)))

    def test_commands_for_a_cloud_have_options_that_there_are(self):
        """What cannot run here is at least read by its program."""
        checked = set()
        for file in pages():
            for command in commands(file.read_text(), cloud=True):
                words = list(
                    itertools.takewhile(
                        lambda word: not SHELL.fullmatch(word),
                        shlex.split(command, comments=True),
                    )
                )
                while words[0] == 'sudo' or '=' in words[0]:
                    del words[0]
                if words[0].startswith('tools/'):
                    self.assertTrue((TOP / words[0]).exists(), command)
                program = pathlib.Path(words[0]).name
                if words[:2] == ['openstack', 'vhpc']:
                    name, said = 'openstack', plugin_complaint(words[1:])
                elif program.startswith('nova-vhpc-'):
                    name = program.removeprefix('nova-vhpc-')
                    said = complaint(name, words[1:])
                else:
                    continue
                checked.add(name)
                self.assertEqual('', said, command)
        self.assertLessEqual(
            {'agent', 'bench', 'ctl', 'explain', 'flavor', 'openstack'},
            checked,
        )

    def test_commands_in_sentences_have_options_that_there_are(self):
        self.assertEqual(
            {'--servers'}, unknown_options('ctl', ['resume', '--servers', 'X'])
        )
        checked, wrong = 0, []
        notes = sorted((TOP / 'releasenotes/notes').glob('*.yaml'))
        for file in [*pages(), *notes]:
            for program, rest in INLINE.findall(file.read_text()):
                if program == 'hosts':
                    # The program for guests is none of the installed ones.
                    continue
                checked += '--' in rest
                unknown = unknown_options(program, rest.split())
                if unknown:
                    wrong.append(f'{file.name}: {program} {rest}: {unknown}')
        self.assertGreater(checked, 20)
        self.assertEqual([], wrong)

    def test_front_page_is_short(self):
        lines = (TOP / 'README.rst').read_text().splitlines()
        self.assertLessEqual(len(lines), 200)

    def test_commands_stand_nowhere_else(self):
        """In a block of another kind nothing would run them."""
        sample = 'Do this::\n\n  pip install x\n\nand so on\n'
        (match,) = LITERAL.finditer(sample)
        self.assertTrue(PROGRAM.search(textwrap.dedent(match['body'])))
        found = [
            f'{file.relative_to(TOP)}: {command[0]}'
            for file in pages()
            for match in LITERAL.finditer(file.read_text())
            for command in [PROGRAM.search(textwrap.dedent(match['body']))]
            if command
        ]
        self.assertEqual([], found)

    def test_commands_run(self):
        found = {
            command: file
            for file in pages()
            for command in commands(file.read_text())
        }
        self.assertGreater(len(found), 10)
        if not (TOP / '.git').exists():
            # It reads the history, which a tarball has not.
            del found['reno lint']
        path = f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}'
        broken = []
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        for command, file in found.items():
            result = subprocess.run(
                ['bash', '-c', command],
                cwd=TOP,
                env={**os.environ, 'PATH': path, 'TMPDIR': scratch.name},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            if result.returncode != 0:
                broken.append(
                    f'{file.relative_to(TOP)}: {command}: exit '
                    f'{result.returncode}\n{result.stderr[-500:]}'
                )
        self.assertEqual([], broken, '\n'.join(broken))
