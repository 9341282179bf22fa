# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Files that the benchmarks write: looked at first, written last.

A measurement takes from seconds to hours. Where its figures cannot go is
said before it, and what cannot be written in the end is printed first.
"""

import contextlib
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TextIO


class OutputError(Exception):
    """A file cannot be written; the text says which and why."""

    def __init__(self, path: pathlib.Path, why: object) -> None:
        super().__init__(f'{path} cannot be written: {why}')


class _Tables:
    """Standard output whose reader may leave before the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Print, or drop what nobody reads any more."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Print what is held back, or drop it."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        # What is held back would be tried again at the program's end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def tables() -> Iterator[None]:
    """What is printed in the block may lose its reader, as to ``head``.

    The figures then still go into their files.
    """
    # It may have been closed by who started us.
    if sys.stdout is None:
        yield
        return
    with contextlib.redirect_stdout(_Tables(sys.stdout)):
        yield
        sys.stdout.flush()


def check(*paths: pathlib.Path | None) -> None:
    """Complain of files that could not be written later.

    :param paths: None for a file that nobody asked for.
    :raises OutputError: for the first that is a directory, that may not be
        written, or whose directory does not exist or may not be.
    """
    for path in paths:
        if path is not None:
            why = _obstacle(path)
            if why is not None:
                raise OutputError(path, why)


def check_directory(path: pathlib.Path | None) -> None:
    """Complain of a directory that could not be filled later.

    It need not exist.

    :param path: None for a directory that nobody asked for.
    :raises OutputError: if it is a file, may not be written to, or could
        not be made.
    """
    if path is None:
        return
    place = path.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not os.path.isdir(place):
        raise OutputError(path, f'{place} is no directory')
    if not os.access(place, os.W_OK | os.X_OK):
        raise OutputError(path, f'no permission to make files in {place}')


def check_matplotlib(path: pathlib.Path | None) -> None:
    """Complain of pictures that could not be drawn for want of Matplotlib.

    :param path: None for pictures that nobody asked for.
    :raises OutputError: if it is not installed.
    """
    if path is None:
        return
    try:
        importlib.import_module('matplotlib.figure')
    except ImportError:
        raise OutputError(
            path,
            'Matplotlib is not installed; install it with: '
            "pip install 'nova-vhpc[plot]'",
        ) from None


def _obstacle(path: pathlib.Path) -> str | None:
    # os.path, as it takes what may not be looked at for missing.
    if os.path.isdir(path):
        return 'it is a directory; name a file in it'
    if os.path.exists(path):
        # In a directory that may not be written to, as /dev/null, too.
        return None if os.access(path, os.W_OK) else 'no permission'
    parent = path.parent
    if not os.path.isdir(parent):
        return f'there is no directory {parent}; make it, or name another'
    if not os.access(parent, os.W_OK | os.X_OK):
        return f'no permission to make a file in {parent}'
    return None


def write_json(path: pathlib.Path | None, document: Mapping[str, Any]) -> None:
    """Write a document; call it when the figures have been printed.

    :param path: None to write nothing.
    :raises OutputError: if it cannot be written all the same.
    """
    if path is None:
        return
    try:
        path.write_text(
            json.dumps(document, indent=1) + '\n', encoding='utf-8'
        )
    except OSError as error:
        raise OutputError(path, error.strerror or error) from None
