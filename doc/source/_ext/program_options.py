# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``.. program-options:: ctl`` writes a program's options from its parser."""

import argparse

from docutils import nodes
from docutils.parsers.rst import Directive

from nova_vhpc.cli import launch
from nova_vhpc_lab import cli as bench


def subparsers(parser):
    """Yield the parsers of the commands of a program, and of theirs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield subparser
                yield from subparsers(subparser)


def _term(action):
    value = action.metavar or action.dest.upper().replace('_', '-')
    if isinstance(value, tuple):
        value = ' '.join(value)
    if not action.option_strings:
        return value
    values = '' if action.nargs == 0 else f' {value}'
    return ', '.join(action.option_strings) + values


def _help(parser, action):
    formatter = parser._get_formatter()
    text = formatter._expand_help(action) if action.help else ''
    if action.choices:
        words = ', '.join(map(str, action.choices))
        text = f'{text.rstrip(".")}. One of: {words}.'
    return text.strip('. ') + '.' if text else ''


def _options(parser):
    options = nodes.definition_list()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(
            action, argparse._HelpAction | argparse._SubParsersAction
        ):
            continue
        item = nodes.definition_list_item()
        item += nodes.term('', '', nodes.literal('', _term(action)))
        item += nodes.definition(
            '', nodes.paragraph('', _help(parser, action))
        )
        options += item
    return [options] if options.children else []


def _usage(parser):
    # argparse indents further lines as if the first began with "usage: ".
    first, *more = parser.format_usage().rstrip().split('\n')
    text = '\n'.join(line[len('usage: ') :] for line in (first, *more))
    block = nodes.literal_block(text, text)
    block['language'] = 'text'
    return block


class ProgramOptions(Directive):
    """The usage and the options of a program, then of its commands."""

    required_arguments = 1

    def run(self):
        """Build the nodes."""
        (program,) = self.arguments
        parser = (
            bench.make_parser()
            if program == 'bench'
            else launch.make_parser(program)
        )
        found = [_usage(parser), *_options(parser)]
        for command in subparsers(parser):
            section = nodes.section(ids=[nodes.make_id(command.prog)])
            section += nodes.title('', command.prog)
            if command.description:
                section += nodes.paragraph(
                    '', command.description.rstrip('.') + '.'
                )
            section += _usage(command)
            section += _options(command)
            found.append(section)
        return found


def setup(app):
    """Register the directive."""
    app.add_directive('program-options', ProgramOptions)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
