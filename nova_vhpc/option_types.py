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

"""Types of options that refuse what would otherwise loosen a limit unseen."""

import math
from collections.abc import Mapping
from typing import Any

from oslo_config import types

from nova_vhpc import extra_specs

NOBODY = 'none'
"""In place of a paradigm, with 0: there is no limit for anybody."""


class Finite(types.Float):  # type: ignore[misc]
    """A number; neither NaN, which passes every minimum, nor infinite."""

    def __call__(self, value: Any) -> float:
        """The value as a number.

        :raises ValueError: if it is none, or too small or large.
        """
        number: float = super().__call__(value)
        if not math.isfinite(number):
            raise ValueError(f'{value} is no finite number')
        return number


class OvercommitLimits(types.Dict):  # type: ignore[misc]
    """vCPUs per host CPU by paradigm: ``openmp:1.0,hybrid:1.5``."""

    def __init__(self) -> None:
        super().__init__(type_name='limits by paradigm')

    def __call__(self, value: Any) -> dict[str, float]:
        """The limits of those paradigms that have one.

        :raises ValueError: naming what is wrong and what is allowed.
        """
        return overcommit_limits(super().__call__(value))


def overcommit_limits(given: Mapping[str, Any]) -> dict[str, float]:
    """Limits of over-commit by paradigm, checked.

    :param given: numbers, or texts that hold them.
    :raises ValueError: for anything that would be no limit by mistake: an
        unknown paradigm, or what is no number > 0.
    """
    limits = {}
    key = extra_specs.BY_NAME['max_overcommit']
    for paradigm, limit in given.items():
        text = str(limit).strip()
        if paradigm == NOBODY and text in ('0', '0.0'):
            continue
        if paradigm not in extra_specs.PARADIGMS:
            raise ValueError(
                f"'{paradigm}' is no vhpc:paradigm: "
                + ', '.join(extra_specs.PARADIGMS)
                + f'; {NOBODY}:0 stands for no limit at all'
            )
        try:
            limits[paradigm] = float(key.parse(text))
        except ValueError:
            raise ValueError(
                f"'{paradigm}:{text}' is not {key.allowed}; a paradigm that "
                'is left out has no limit'
            ) from None
    return limits
