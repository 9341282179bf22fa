# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The one compiled function that Python calls, and its cache."""

import hashlib
import importlib.resources
import logging
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numba
from numba import njit
from numba.core import caching

from nova_vhpc_lab.sim.kernel import commands, events, switch
from nova_vhpc_lab.sim.kernel.compiled import inner

LOG = logging.getLogger(__name__)

#: What is asked of :func:`run`; its arguments are two integers.
(
    ADVANCE,
    BOOT,
    ADD_GROUP,
    START,
    END,
    SET_WEIGHT,
    SET_IDLE,
    REPIN,
    SET_QUOTA,
    REQUEST,
) = range(10)


@inner
def _settle(s):
    """Have every CPU choose that has to."""
    k = s.k[0]
    while k.pending:
        k.pending -= 1
        cpu = s.pending[k.pending]
        if s.cpus[cpu].resched:
            switch.schedule(s, cpu)


@inner
def _command(s, command, which, value, other):
    if command == BOOT:
        commands.boot(s)
    elif command == ADD_GROUP:
        commands.add_group(s, which)
    elif command == START:
        commands.start_thread(s, which)
    elif command == END:
        commands.end_thread(s, which)
    elif command == SET_WEIGHT:
        commands.set_weight(s, which, float(value))
    elif command == SET_IDLE:
        commands.set_idle(s, which, value != 0)
    elif command == REPIN:
        commands.repin(s, which)
    elif command == SET_QUOTA:
        commands.set_quota(s, which, value, other)
    elif command == REQUEST:
        events.request(s, which)
    _settle(s)


@inner
def _advance(s, until):
    k = s.k[0]
    while s.size[0]:
        timer = s.heap[0]
        due = s.due[timer]
        if due > until:
            break
        k.now = due
        k.events += 1
        events.fire(s, timer)
        _settle(s)
    k.now = until


def _fingerprint() -> str:
    """Return a hash of all that is compiled into the one function."""
    digest = hashlib.sha256()
    package = importlib.resources.files(__package__)
    for source in sorted(package.iterdir(), key=lambda path: path.name):
        if source.name.endswith('.py'):
            digest.update(source.read_bytes())
    return digest.hexdigest()


FINGERPRINT = _fingerprint()


class ContentCacheLocator(caching.UserProvidedCacheLocator):
    """The user's cache directory, by the content of what is compiled.

    Numba's own locators go by the path of the source, so that each clone
    would compile the simulator again, for about a minute.
    """

    def get_cache_path(self) -> str:
        """Return the directory of the compiled simulator."""
        home = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
        folder = pathlib.Path(home).expanduser() / 'nova-vhpc'
        return str(folder / f'simulator-{FINGERPRINT[:16]}')

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Return a locator, or None if the directory cannot be made."""
        locator = cls(py_func, py_file)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        if not any(pathlib.Path(locator.get_cache_path()).glob('*.nbc')):
            print(
                'The simulator is compiled at its first use: about a minute.',
                file=sys.stderr,
            )
        return locator


def _compile(cache: bool) -> Callable[..., int]:
    # Numba's cache looks at the file of the cached function only. The cell
    # variable is a part of its key, so that no stale code is loaded.
    fingerprint = int(FINGERPRINT[:15], 16)

    @njit(cache=cache)
    def run(s: Any, command: int, which: int, value: int, other: int) -> int:
        if command == ADVANCE:
            _advance(s, value)
        else:
            _command(s, command, which, value, other)
        return fingerprint

    return run


def _with_cache() -> Callable[..., int]:
    numba.config.CACHE_LOCATOR_CLASSES = (  # type: ignore[attr-defined]
        f'{__name__}.{ContentCacheLocator.__name__}'
    )
    try:
        return _compile(cache=True)
    except RuntimeError as error:
        # Neither the package nor the home directory can be written to.
        LOG.info('The simulator is compiled again at each start: %s', error)
        return _compile(cache=False)


run = _with_cache()
