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
