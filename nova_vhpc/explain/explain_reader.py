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


"""Takes values out of decoded JSON and says exactly what is wrong."""

import re
from collections.abc import Mapping
from typing import Any

_MISSING: Any = object()

_HALF = re.compile(r'[\ud800-\udfff]')
"""Half of a pair, which JSON's escapes can say, but no text can hold."""

MOST = 10**12
"""Largest number that is taken: more than any host has of anything."""


class RequestError(ValueError):
    """The request cannot be read; says where and what is wanted."""


class Reader:
    """One object of the document.

    :param where: its place, for messages.
    :raises RequestError: from every method, naming place and value.
    """

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise RequestError(f'{where}: wanted an object')
        for key, value in values.items():
            for text in (key, value):
                if isinstance(text, str) and _HALF.search(text):
                    raise RequestError(
                        f'{where}.{ascii(key)[1:-1]}: {text!a} is no text: '
                        'half of a surrogate pair'
                    )
        self.values: Mapping[str, Any] = values
        self.where = where
        self._taken: set[str] = set()

    def get(self, key: str, default: Any = _MISSING) -> Any:
        """A value as it stands there."""
        self._taken.add(key)
        value = self.values.get(key, default)
        if value is _MISSING:
            raise RequestError(f'{self.where}: {key} is missing')
        return value

    def child(self, key: str) -> 'Reader':
        """An object within this one; an empty one if it is not there."""
        return Reader(self.get(key, {}), f'{self.where}.{key}')

    def children(self, key: str) -> list['Reader']:
        """The objects of a list."""
        listed = self.get(key)
        if not isinstance(listed, list):
            raise RequestError(f'{self.where}.{key}: wanted a list')
        return [
            Reader(item, f'{self.where}.{key}[{number}]')
            for number, item in enumerate(listed)
        ]

    def integer(
        self,
        key: str,
        default: Any = _MISSING,
        least: int = 0,
        most: int = MOST,
    ) -> int:
        """An integer that is neither too small nor too large."""
        value = self.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
        ):
            raise RequestError(
                f'{self.where}.{key}: {value!r} is no integer >= {least}'
            )
        if value > most:
            raise RequestError(f'{self.where}.{key}: it is more than {most}')
        return value

    def optional(self, key: str, least: int = 0) -> int | None:
        """An integer, or None if it is null or not there."""
        if self.get(key, None) is None:
            return None
        return self.integer(key, least=least)

    def number(self, key: str, default: float, least: int = -MOST) -> float:
        """A number, whole or not, of no more than :data:`MOST`."""
        value = self.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            # Python's JSON takes NaN, which is not, and 1e999, which is.
            or not least <= value <= MOST
        ):
            words = f'from {least}' if least > -MOST else 'up'
            raise RequestError(
                f'{self.where}.{key}: {value!r} is no number {words} to {MOST}'
            )
        return float(value)

    def text(self, key: str, default: Any = _MISSING) -> Any:
        """A text, or the default if it is null or not there."""
        value = self.get(key, default)
        if value is None and default is None:
            return None
        if not isinstance(value, str):
            raise RequestError(f'{self.where}.{key}: {value!r} is no text')
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """True or false, and no word for it."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise RequestError(
                f'{self.where}.{key}: {value!r} is neither true nor false'
            )
        return value

    def choice(
        self, key: str, choices: tuple[str, ...], default: Any = _MISSING
    ) -> Any:
        """One of some words."""
        value = self.get(key, default)
        if value is not default and value not in choices:
            raise RequestError(
                f'{self.where}.{key}: {value!r} is not one of: '
                + ', '.join(choices)
            )
        return value

    def done(self) -> None:
        """Nothing more is wanted: what else stands there is a mistake."""
        unknown = sorted(set(self.values) - self._taken)
        if unknown:
            raise RequestError(
                f'{self.where}: nobody knows {", ".join(unknown)}; known '
                'are: ' + ', '.join(sorted(self._taken))
            )
