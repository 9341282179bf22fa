# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Files that the benchmarks write.

A measurement takes seconds to hours. Therefore each benchmark checks before
it that the files can be written, and prints the figures before it writes them.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TextIO


class OutputError(Exception):
    """A file cannot be written.

    :param path: the file.
    :param why: reason, for the message.
    """

    def __init__(self, path: pathlib.Path, why: object) -> None:
        super().__init__(f'{path} cannot be written: {why}')


class _Tables:
    """Standard output that discards text once its reader has ended."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Print text."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Print buffered text."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        # Python would flush the buffered text again at exit, and fail again.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``--json``, the path of :func:`write_json`."""
    parser.add_argument(
        '--json', type=pathlib.Path, metavar='FILE', help='write all figures'
    )


@contextlib.contextmanager
def tables() -> Iterator[None]:
    """Ignore in a ``with`` block that the reader of the output has ended.

    With ``nova-vhpc-bench ... | head``, the files are written all the same.
    """
    # None if the parent process started this one with stdout closed.
    if sys.stdout is None:
        yield
        return
    with contextlib.redirect_stdout(_Tables(sys.stdout)):
        yield
        sys.stdout.flush()


def check(*paths: pathlib.Path | None) -> None:
    """Check that files can be written later.

    :param paths: the files; None is skipped.
    :raises OutputError: if a path is a directory, lacks write permission, or
        lies in a directory that is missing or lacks write permission.
    """
    for path in paths:
        if path is not None:
            why = _obstacle(path)
            if why is not None:
                raise OutputError(path, why)


def check_directory(path: pathlib.Path | None) -> None:
    """Check that files can be written to a directory later.

    :param path: the directory, which need not exist; None is skipped.
    :raises OutputError: if the path is a file, lacks write permission, or
        cannot be created.
    """
    if path is None:
        return
    existing = path.absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    if not os.path.isdir(existing):
        raise OutputError(path, f'{existing} is not a directory')
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(path, f'no permission to make files in {existing}')


def _obstacle(path: pathlib.Path) -> str | None:
    # os.path returns False, and pathlib raises, without search permission.
    if os.path.isdir(path):
        return 'it is a directory; name a file in it'
    if os.path.exists(path):
        # An existing file, like /dev/null, needs no permission on its folder.
        return None if os.access(path, os.W_OK) else 'no permission'
    parent = path.parent
    if not os.path.isdir(parent):
        return f'there is no directory {parent}; make it, or name another'
    if not os.access(parent, os.W_OK | os.X_OK):
        return f'no permission to make a file in {parent}'
    return None


def write_json(path: pathlib.Path | None, document: Mapping[str, Any]) -> None:
    """Write the figures, which must have been printed before.

    :param path: the file; None to write nothing.
    :raises OutputError: if the file cannot be written.
    """
    write_text(path, json.dumps(document, indent=1) + '\n')


def write_text(path: pathlib.Path | None, text: str) -> None:
    """Write a text file.

    :param path: the file; None to write nothing.
    :raises OutputError: if the file cannot be written.
    """
    if path is None:
        return
    try:
        path.write_text(text, encoding='utf-8')
    except OSError as error:
        raise OutputError(path, error.strerror or error) from None
