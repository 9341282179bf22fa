# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write the completion of bash for all programs.

``python -m nova_vhpc.cmd.completion DIRECTORY`` writes one file for each, as
bash-completion loads them by the names of the programs. The files need no
Python: a program that answers by itself would take a second per key.
"""

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from nova_vhpc.cmd import arguments
from nova_vhpc.flavor import extra_specs

PROGRAMS = (
    'agent',
    'ctl',
    'explain',
    'flavor',
    'hook',
    'status',
    'top',
    'vendordata',
)

_PATHS = ('file', 'path', 'request', 'dir', 'config', 'csv', 'socket')
"""Parts of the names of arguments that take a path."""


def make_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of a program's command line."""
    module = importlib.import_module(f'nova_vhpc.cmd.{program}')
    parser: argparse.ArgumentParser = module.make_parser()
    return parser


def script(program: str) -> str:
    """Return the completion of a program for bash.

    :raises ImportError: shtab is not installed.
    """
    import shtab

    parser = make_parser(program)
    for action in _actions(parser):
        name = f'{action.dest} {action.metavar or ""}'.lower()
        key = extra_specs.BY_NAME.get(action.dest)
        if program == 'flavor' and key is not None and key.choices:
            # The program itself checks them, with a better message.
            action.choices = key.choices
        elif action.nargs != 0 and any(part in name for part in _PATHS):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    # For bash, which bandit would take for a call of a shell if named.
    return str(shtab.complete(parser))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _actions(subparser)
        else:
            yield action


def main(argv: list[str] | None = None) -> int:
    """Write one file for each program whose libraries are installed.

    :returns: 0; 1 if shtab is missing or a file cannot be written, with the
        reason on stderr.
    """
    parser = arguments.ArgumentParser(
        prog='python -m nova_vhpc.cmd.completion',
        description='Write the completion of bash for all programs.',
    )
    parser.add_argument(
        'directory',
        type=Path,
        help='existing directory, such as '
        '/usr/local/share/bash-completion/completions',
    )
    args = parser.parse_args(argv)
    try:
        import shtab  # noqa: F401
    except ImportError as error:
        print(
            f'{parser.prog}: {error}: pip install "nova-vhpc[completion]"',
            file=sys.stderr,
        )
        return 1
    try:
        for program in PROGRAMS:
            name = f'nova-vhpc-{program}'
            try:
                text = script(program)
            except ImportError as error:
                # Hosts have the extras of the programs that they need.
                print(f'{name}: left out: {error}', file=sys.stderr)
            else:
                (args.directory / name).write_text(text)
    except OSError as error:
        print(f'{parser.prog}: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
