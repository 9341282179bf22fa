# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What console scripts read and print: arguments, names and JSON."""

import argparse
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TextIO

from nova_vhpc import close_match

_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
"""How argparse writes that a word is none of those that it accepts."""


class ArgumentParser(argparse.ArgumentParser):
    """A parser that takes no abbreviations, and names what was meant.

    argparse has ``suggest_on_error`` from Python 3.14 on only, and for words,
    not for options.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{'allow_abbrev': False, **kwargs})

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """Parse a command line.

        :raises SystemExit: with 2 on wrong arguments.
        """
        parsed: argparse.Namespace
        parsed, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error(
                f'unrecognized arguments: {" ".join(rest)}'
                + _hint(rest, list(self._options(parsed)))
            )
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print usage and a message, and exit with 2."""
        match = _CHOICE.search(message)
        if match and 'maybe you meant' not in message:
            words = re.findall(r"[^\s',]+", match[2])
            message += close_match.hint(match[1], words)
        super().error(message)

    def _options(self, parsed: argparse.Namespace) -> Iterator[str]:
        """Yield the options of the parser and of the chosen command."""
        yield from self._option_string_actions
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                chosen = action.choices.get(getattr(parsed, action.dest, ''))
                if chosen is not None:
                    yield from chosen._option_string_actions


def _hint(rest: Sequence[str], known: Sequence[str]) -> str:
    """Return a hint for the first option that is like a known one."""
    for word in rest:
        if word.startswith('--'):
            found = close_match.hint(word.partition('=')[0], known)
            if found:
                return found
    return ''


def take_any_name() -> None:
    """Make standard output accept characters that its encoding lacks.

    Names in a cloud may have any character. One that the locale's encoding
    lacks is printed with a backslash escape, instead of ending the program.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='backslashreplace')


def word_of(words: Iterable[str]) -> Callable[[str], str]:
    """Return a type of arguments that must be one of some words.

    Unlike ``choices``, it names the word that was probably meant by parsers
    of others, too.
    """
    known = sorted(words)

    def parse(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(
                f"'{text}' is none of {', '.join(known)}"
                + close_match.hint(text, known)
            )
        return text

    return parse


def name(text: str) -> str:
    """Return the name of a host or server.

    :raises ArgumentTypeError: it is empty, as by an unset script variable.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError(f"'{text}' is no name")
    return text


def print_json(
    document: Any, *, sort_keys: bool = False, file: TextIO | None = None
) -> None:
    """Print a document as JSON, for scripts.

    A closed pipe, for instance to ``head``, ends the program quietly.

    :param file: where to print; standard output if None.
    :raises SystemExit: with 1 if the pipe is closed.
    """
    text = json.dumps(document, indent=2, sort_keys=sort_keys)
    try:
        print(text, flush=True, file=file)
    except BrokenPipeError:
        drop_output()
        raise SystemExit(1) from None


def drop_output() -> None:
    """Print nothing more, because the pipe is closed.

    Python would write the rest when it ends, and complain.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
