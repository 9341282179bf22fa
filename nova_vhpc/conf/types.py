# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Types of options that refuse values which would silently lift a limit."""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import types

from nova_vhpc.flavor import extra_specs

NO_PARADIGM = 'none'
"""Key that, with the value 0, means that no paradigm has a limit."""


class Integer(types.Integer):  # type: ignore[misc]
    """An integer; the error names the value and the allowed ones."""

    def __call__(self, value: Any) -> int:
        """Return the value as an integer.

        :raises ValueError: the value is not an integer or out of range.
        """
        number: int = _read(super().__call__, value, 'an integer', self)
        return number


class Port(Integer):
    """A TCP port; 0 means none or any, as the option says."""

    def __init__(self) -> None:
        super().__init__(0, 65_535, type_name='port value')


class Finite(types.Float):  # type: ignore[misc]
    """A finite number. NaN would pass any check of a minimum.

    :param min: smallest value, None for no limit.
    :param max: largest value, None for no limit.
    :param unit: unit for the error message, such as ``seconds``.
    """

    def __init__(
        self,
        min: float | None = None,
        max: float | None = None,
        unit: str | None = None,
    ) -> None:
        super().__init__(min=min, max=max)
        self._words = 'a number' + (f' of {unit}' if unit else '')

    def __call__(self, value: Any) -> float:
        """Return the value as a number.

        :raises ValueError: the value is not a finite number or out of range.
        """
        number: float = _read(super().__call__, value, self._words, self)
        return number


def _read(
    convert: Callable[[Any], Any], value: Any, words: str, kind: types.Number
) -> Any:
    """Convert a value to a number.

    An empty value, which oslo.config converts to None, is refused.

    :raises ValueError: the message names the value and the allowed ones.
    """
    number = None
    finite = False
    # math.isfinite() raises OverflowError for an integer of hundreds of
    # digits.
    with contextlib.suppress(ValueError, OverflowError):
        number = convert(value)
        finite = number is not None and math.isfinite(number)
    if not finite:
        if kind.min is not None and kind.max is not None:
            words += f' from {_plain(kind.min)} to {_plain(kind.max)}'
        elif kind.min is not None:
            words += f' >= {_plain(kind.min)}'
        raise ValueError(f"'{value}' is not {words}")
    return number


def _plain(number: float) -> str:
    """Return a number without exponent, which an operator can copy."""
    return f'{number:f}'.rstrip('0').rstrip('.')


class OvercommitLimits(types.Dict):  # type: ignore[misc]
    """vCPUs per host CPU by paradigm: ``openmp:1.0,hybrid:1.5``."""

    def __init__(self) -> None:
        super().__init__(type_name='limits by paradigm')

    def __call__(self, value: Any) -> dict[str, float]:
        """Return the limit of each paradigm that has one.

        :raises ValueError: the message names the fault and what is allowed.
        """
        return overcommit_limits(super().__call__(value))


def overcommit_limits(given: Mapping[str, Any]) -> dict[str, float]:
    """Check limits of over-commit and return them by paradigm.

    :param given: numbers, or texts of numbers, by paradigm.
    :raises ValueError: a paradigm is unknown or a limit is not a number > 0,
        which would otherwise mean that there is no limit.
    """
    limits = {}
    key = extra_specs.BY_NAME['max_overcommit']
    for paradigm, limit in given.items():
        text = str(limit).strip()
        if paradigm == NO_PARADIGM and text in ('0', '0.0'):
            continue
        if paradigm not in extra_specs.PARADIGMS:
            raise ValueError(
                f"'{paradigm}' is no vhpc:paradigm: "
                + ', '.join(extra_specs.PARADIGMS)
                + f'; {NO_PARADIGM}:0 means no limit for any paradigm'
            )
        try:
            limits[paradigm] = float(key.parse(text))
        except ValueError:
            raise ValueError(
                f"'{paradigm}:{text}' is not {key.allowed}; a paradigm that "
                'is left out has no limit'
            ) from None
    return limits
