# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Types of options that refuse what would fail later, or lift a limit.

A value is checked when it is read, so that the error names option and file,
and not by the thread that uses it.
"""

import contextlib
import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import types

from nova_vhpc.flavor import extra_specs
from nova_vhpc.linux import cpus
from nova_vhpc.topology import bridge_rules

MOST_SECONDS = 31 * 86_400
"""A month: Python refuses to wait for much longer, in a thread of its own."""

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


class _Text(types.String):  # type: ignore[misc]
    """A text that :meth:`check` accepts; empty is as unset.

    Its name in the sample file is that of any text.
    """

    def __call__(self, value: Any) -> str:
        """Return the text.

        :raises ValueError: the text is wrong; the message says what is right.
        """
        text = str(super().__call__(value)).strip()
        if text:
            self.check(text)
        return text

    def check(self, text: str) -> None:
        """Check a text that is not empty.

        :raises ValueError: see above.
        """
        raise NotImplementedError


class AbsolutePath(_Text):
    """A path that is the same in whatever directory a program starts.

    :param needed: whether it must not be empty.
    """

    def __init__(self, needed: bool = True) -> None:
        super().__init__()
        self._needed = needed

    def __call__(self, value: Any) -> str:
        """Return the path.

        :raises ValueError: it is relative, or empty where it is needed.
        """
        text = super().__call__(value)
        if self._needed and not text:
            raise ValueError('it is empty')
        return text

    def check(self, text: str) -> None:
        """Refuse a relative path."""
        if not text.startswith('/'):
            raise ValueError(f"'{text}' is no absolute path, such as /{text}")


class Name(_Text):
    """A name as Nova has it, of a host or an aggregate's metadata key."""

    def check(self, text: str) -> None:
        """Refuse what is more than one word."""
        if re.search(r'[\s,]', text):
            raise ValueError(f"'{text}' is no name: it has blanks or commas")


class CpuSet(_Text):
    """Host CPUs in the syntax of Nova's ``[compute]cpu_shared_set``."""

    def check(self, text: str) -> None:
        """Refuse another syntax."""
        cpus.parse_cpu_set(text)


class LibvirtUri(_Text):
    """A URI of libvirt, or an alias that its configuration has."""

    def check(self, text: str) -> None:
        """Refuse what has no scheme, such as ``localhost:16509``."""
        if not re.match(r'[\w+.-]+:/|[\w-]+$', text):
            raise ValueError(
                f"'{text}' is no URI of libvirt, such as qemu:///system"
            )


class OvsdbConnection(_Text):
    """Where ovsdb-server listens: ``unix:PATH`` or ``tcp:ADDRESS:PORT``."""

    def check(self, text: str) -> None:
        """Refuse TLS, addresses without scheme, and wrong ports."""
        scheme, _, rest = text.partition(':')
        host, _, port = rest.rpartition(':')
        is_port = re.fullmatch(r'\d{1,5}', port) and 0 < int(port) < 65_536
        if scheme == 'unix' and rest.startswith('/'):
            return
        if scheme == 'tcp' and is_port and _is_address(host):
            return
        what = (
            'TLS is not supported'
            if scheme in ('ssl', 'tls')
            else f"'{text}' is no such place"
        )
        raise ValueError(
            f'{what}; allowed: unix:PATH, such as '
            'unix:/run/openvswitch/db.sock, and tcp:ADDRESS:PORT, such as '
            'tcp:127.0.0.1:6640 or tcp:[::1]:6640'
        )


def _is_address(text: str) -> bool:
    """Return whether a text is an IP address, one of IPv6 in brackets.

    The library of Open vSwitch looks up no names.
    """
    inner = text.removeprefix('[').removesuffix(']')
    with contextlib.suppress(ValueError):
        version = ipaddress.ip_address(inner).version
        return text == (f'[{inner}]' if version == 6 else inner)
    return False


class BridgeRules(types.List):  # type: ignore[misc]
    """Rules for bridges, see :mod:`nova_vhpc.topology.bridge_rules`."""

    def __call__(self, value: Any) -> list[str]:
        """Return the texts of the rules.

        :raises ValueError: the message names the rule and what is allowed.
        """
        rules: list[str] = super().__call__(value)
        bridge_rules.parse_rules(rules)
        return rules


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
