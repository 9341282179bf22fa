# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The ``vhpc:*`` flavor extra specs, in one table.

The filter and the agent use :func:`parse`, which accepts wrong values: a
flavor may be older than the validators. Nova's API uses :func:`register`,
whose validators refuse wrong values.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from nova_vhpc import close_match

PREFIX = 'vhpc:'

WORKLOADS = ('parallel', 'latency', 'general')
PARADIGMS = ('mpi', 'openmp', 'hybrid')
NETWORKS = (
    'exported',
    'shared',
    'multiple-shared',
    'separate',
    'shared-separate',
)
TIERS = ('host', 'switch', 'rack')
IO_POOL_USES = ('auto', 'always', 'never')
WAIT_MODES = ('auto', 'passive', 'active')

# Zero is refused: as a limit it would mean no limit, or leave no host.
_DECIMAL = r'(?![0.]+$)[0-9]{1,6}(\.[0-9]{1,6})?'


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """One extra spec: its name, its meaning and its values.

    :ivar name: name without :data:`PREFIX`.
    :ivar description: meaning, for help texts and Nova's documentation.
    :ivar kind: ``int``, ``enum``, ``decimal`` (more than 0) or ``name``.
    :ivar choices: all values of an ``enum``.
    :ivar minimum: smallest value of an ``int``.
    :ivar maximum: largest value of an ``int``, None for no limit.
    """

    name: str
    description: str
    kind: str
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int | None = None

    @property
    def full_name(self) -> str:
        """Return the name with its prefix, as the flavor has it."""
        return PREFIX + self.name

    @property
    def allowed(self) -> str:
        """Return, for messages, which values the key accepts."""
        if self.kind == 'enum':
            return 'one of: ' + ', '.join(self.choices)
        if self.kind == 'int':
            top = '' if self.maximum is None else f' and <= {self.maximum}'
            return f'an integer >= {self.minimum}{top}'
        if self.kind == 'decimal':
            return 'a decimal number > 0, such as 1.5'
        return '1 to 255 letters, digits or any of . _ : -'

    def parse(self, value: str) -> str | int | float:
        """Convert the flavor's text into a value.

        :raises ValueError: naming key, value and what is allowed.
        """
        text = str(value).strip()
        parsed: str | int | float | None = None
        if self.kind == 'enum':
            parsed = text if text in self.choices else None
        elif self.kind == 'int':
            if re.fullmatch('[0-9]{1,12}', text):
                number = int(text)
                if number >= self.minimum and (
                    self.maximum is None or number <= self.maximum
                ):
                    parsed = number
        elif self.kind == 'decimal':
            if re.fullmatch(_DECIMAL, text):
                parsed = float(text)
        elif re.fullmatch('[A-Za-z0-9._:-]{1,255}', text):
            parsed = text
        if parsed is None:
            raise ValueError(
                f"{self.full_name}: '{value}' is not {self.allowed}"
                f'{close_match.hint(text, self.choices)}'
            )
        return parsed


KEYS: tuple[Key, ...] = (
    Key(
        'workload',
        'Which time slice policy applies: parallel for MPI and OpenMP '
        'programs, latency for request/response servers, general for all '
        'else.',
        'enum',
        choices=WORKLOADS,
    ),
    Key(
        'paradigm',
        'How the parallel program communicates. Sets the defaults of '
        'over-commit and pinning.',
        'enum',
        choices=PARADIGMS,
    ),
    Key(
        'network',
        'Network configuration that a host must be able to serve.',
        'enum',
        choices=NETWORKS,
    ),
    Key(
        'min_link_mbps',
        'Least link speed of the uplink, in Mbit/s.',
        'int',
    ),
    Key(
        'spare_cpus',
        "Host CPUs to be left free for the host's own packet work.",
        'int',
    ),
    Key(
        'uplink_nic',
        'Index (from 0) of the guest NIC that goes to the own uplink. '
        'Without it, the last NIC.',
        'int',
        maximum=255,
    ),
    Key(
        'max_overcommit',
        'Most vCPUs per host CPU that the host may reach with this server.',
        'decimal',
    ),
    Key(
        'max_tier',
        'Widest part of the fabric that the virtual cluster may spread over. '
        'If no such part holds all members, they are refused.',
        'enum',
        choices=TIERS,
    ),
    Key(
        'io_pool',
        'Whether the server may be moved to the I/O pool: auto by its '
        'phase, always, never.',
        'enum',
        choices=IO_POOL_USES,
    ),
    Key(
        'members',
        'Number of members that the virtual cluster will have. If its '
        'servers are created one at a time, each is placed with the others '
        'in mind. The scheduler hint vhpc_members comes first.',
        'int',
        minimum=1,
        maximum=4096,
    ),
    Key(
        'time_slice_us',
        'Administrator-specified time slice in microseconds (the SPECIFIED '
        "of the ATC paper's Algorithm 2).",
        'int',
        minimum=1000,
        maximum=1_000_000,
    ),
    Key(
        'wait',
        'How programs in the guest are to wait for each other: passive naps, '
        'active spins, auto spins while nobody takes the CPU and naps while '
        'somebody does. Vendordata tells guests; the agent does nothing '
        'because of it.',
        'enum',
        choices=WAIT_MODES,
    ),
    Key(
        'cluster',
        'Name of the virtual cluster, for clouds without an answering Nova '
        'API on the compute hosts. A server group is better.',
        'name',
    ),
)

BY_NAME: Mapping[str, Key] = {key.name: key for key in KEYS}

MEMBERS_HINT = 'vhpc_members'
"""Scheduler hint that comes before the key ``members``."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExtraSpecs:
    """A flavor's parsed ``vhpc:*`` extra specs; None for a missing one.

    :ivar requested: whether the flavor has any ``vhpc:`` key.
    :ivar asks_agent: whether it has one that is more than a hint to guests.
        The agent writes to no server without.
    :ivar errors: one sentence for each unknown key or wrong value. If there
        is any, the server counts as ``general``.
    """

    requested: bool = False
    asks_agent: bool = False
    workload: str = 'general'
    paradigm: str = 'mpi'
    network: str | None = None
    min_link_mbps: int | None = None
    spare_cpus: int | None = None
    uplink_nic: int | None = None
    max_overcommit: float | None = None
    max_tier: str | None = None
    io_pool: str = 'auto'
    members: int | None = None
    time_slice_us: int | None = None
    wait: str = 'auto'
    cluster: str | None = None
    errors: tuple[str, ...] = ()


NOTHING = ExtraSpecs()


def requested(extra_specs: Mapping[str, str]) -> bool:
    """Return whether a flavor has any ``vhpc:*`` key. Takes microseconds."""
    return any(name.startswith(PREFIX) for name in extra_specs)


def parse(extra_specs: Mapping[str, str]) -> ExtraSpecs:
    """Parse a flavor's ``vhpc:*`` keys. Never raises.

    :param extra_specs: all extra specs of the flavor.
    """
    values: dict[str, Any] = {}
    errors: list[str] = []
    names = sorted(name for name in extra_specs if name.startswith(PREFIX))
    if not names:
        return NOTHING
    for name in names:
        key = BY_NAME.get(name[len(PREFIX) :])
        if key is None:
            errors.append(f'{name}: no such extra spec{meant(name)}')
            continue
        try:
            values[key.name] = key.parse(extra_specs[name])
        except ValueError as error:
            errors.append(str(error))
    if errors:
        values['workload'] = 'general'
    return ExtraSpecs(
        requested=True,
        asks_agent=names != [BY_NAME['wait'].full_name],
        errors=tuple(errors),
        **values,
    )


def meant(name: str) -> str:
    """Return the end of a message about an unknown key: what was meant.

    :param name: the key with its prefix, as the flavor has it.
    """
    names = [key.full_name for key in KEYS]
    near = close_match.hint(name, names)
    return near or '; known are: ' + ', '.join(names)


def register() -> list[Any]:
    """Return validators for Nova's API.

    Entry point of the group ``nova.api.extra_spec_validators``.
    """
    # Imported here: agents parse extra specs on hosts without nova.
    from nova import exception
    from nova.api.validation.extra_specs import base

    class Validator(base.ExtraSpecValidator):  # type: ignore[misc]
        """A validator whose messages name the key, unlike Nova's own."""

        def validate(self, name: str, value: str) -> None:
            try:
                BY_NAME[name.removeprefix(PREFIX)].parse(value)
            except ValueError as error:
                raise exception.ValidationError(
                    f'Validation failed; {error}'
                ) from None

    return [
        Validator(
            name=key.full_name,
            description=key.description,
            value=_nova_value(key),
        )
        for key in KEYS
    ]


def _nova_value(key: Key) -> dict[str, Any]:
    """Return the key's type as Nova's documentation generator needs it."""
    if key.kind == 'enum':
        return {
            'type': str,
            'description': key.allowed,
            'enum': list(key.choices),
        }
    if key.kind == 'int':
        value = {
            'type': int,
            'description': key.allowed,
            'min': key.minimum,
        }
        if key.maximum is not None:
            value['max'] = key.maximum
        return value
    pattern = _DECIMAL if key.kind == 'decimal' else '[A-Za-z0-9._:-]{1,255}'
    return {'type': str, 'description': key.allowed, 'pattern': pattern}
