# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Keep eventlet out of the agent, which runs native threads only.

Libraries load eventlet wherever it is installed, and Nova installs it. It
would change nothing, as nobody patches, but it says at each start that it is
deprecated.
"""

import contextlib
import importlib.abc
import sys
import warnings
from collections.abc import Iterator
from typing import Any


class _NoEventlet(importlib.abc.MetaPathFinder):
    """Refuses to import eventlet, unless it is loaded already."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == 'eventlet':
            raise ImportError('nova-vhpc runs native threads only')


_FINDER = _NoEventlet()


def refuse() -> None:
    """Refuse eventlet from now on."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """Let a library load eventlet that cannot do without."""
    sys.meta_path.remove(_FINDER)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        refuse()
