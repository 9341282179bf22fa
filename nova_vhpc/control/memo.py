# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Remember the last result of a function, for inputs that seldom change."""

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

_P = ParamSpec('_P')
_R = TypeVar('_R')


class LastCall(Generic[_P, _R]):
    """Calls a function again only if its arguments differ from last time.

    Returns the same object otherwise. Arguments are compared with ``==``, and
    objects that are identical are not looked into. For use where the gain was
    measured (``nova-vhpc-bench controller``).

    :param function: depends on nothing but its positional arguments.
    """

    def __init__(self, function: Callable[_P, _R]) -> None:
        self._function = function
        self._last: tuple[tuple[object, ...], _R] | None = None

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Return the function's result."""
        if self._last is not None and self._last[0] == args:
            return self._last[1]
        result = self._function(*args, **kwargs)
        self._last = args, result
        return result
