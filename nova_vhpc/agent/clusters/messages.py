# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Messages between agents, as they travel over the bus.

Messages about phases and about slots have one envelope: cluster, host, boot,
seq and lease. ``doc/source/reference/rpc.rst`` describes the fields. Unknown
fields are ignored: they belong to newer versions.
"""

from typing import Any

from nova_vhpc.agent.clusters import names, protocol
from nova_vhpc.control import leases
from nova_vhpc.control.model import ClusterPlan, Phase
from nova_vhpc.control.slots import frame
from nova_vhpc.control.slots import messages as slots
from nova_vhpc.control.slots import protocol as slot_protocol

_MOST = 2**63 - 1
_MOST_CPUS = 2**20


def encode_phase(message: protocol.Message) -> dict[str, Any]:
    """Return the fields of a message about a phase as they are sent."""
    fields = _envelope(message) | {'phase': message.statement.phase.value}
    if message.statement.min_slice_us is not None:
        fields['min_slice_us'] = message.statement.min_slice_us
    return fields


def decode_phase(fields: dict[str, Any]) -> protocol.Message:
    """Return the message about a phase that has these fields.

    :raises KeyError, TypeError, ValueError: the fields are invalid.
    """
    slice_us = fields.get('min_slice_us')
    if slice_us is not None:
        slice_us = _number(slice_us, 0, _MOST)
    return protocol.Message(
        *_read_envelope(fields), ClusterPlan(Phase(fields['phase']), slice_us)
    )


def encode_slots(message: slots.Message) -> dict[str, Any]:
    """Return the fields of a message about slots as they are sent."""
    report = message.statement
    decision = report.decision
    fields = _envelope(message) | report._asdict()
    del fields['decision']
    if decision is not None:
        fields['decision'] = decision._asdict()
    return fields | {
        'wall_us': message.wall_us,
        'lags': dict(message.lags),
    }


def decode_slots(fields: dict[str, Any]) -> slots.Message:
    """Return the message about slots that has these fields.

    :raises KeyError, TypeError, ValueError: the fields are invalid.
    """
    return slots.Message(
        *_read_envelope(fields),
        slots.Report(
            _number(fields['wanted'], 1, frame.SLOTS),
            _number(fields['width'], 1, _MOST_CPUS),
            _number(fields['blocked'], 0, frame.ALL),
            _number(fields['avoided'], 0, frame.ALL),
            _number(fields['taken'], 0, frame.ALL),
            _flag(fields['plays']),
            _number(fields['rests'], 0, slot_protocol.FARTHEST),
            _flag(fields['ready']),
            _decision(fields.get('decision')),
            _number(fields['slot_us'], 0, 2**40),
        ),
        _number(fields['wall_us'], 0, _MOST),
        _lags(fields['lags']),
    )


def _envelope(message: leases.Message[Any]) -> dict[str, Any]:
    return {
        'cluster': message.cluster,
        'host': message.host,
        'boot': message.boot,
        'seq': message.seq,
        'lease_ms': message.lease_us // 1000,
    }


def _read_envelope(fields: dict[str, Any]) -> tuple[str, str, int, int, int]:
    """Return cluster, host, boot, seq and lease (in microseconds)."""
    return (
        _name(fields['cluster']),
        _name(fields['host']),
        _number(fields['boot'], 0, _MOST),
        _number(fields['seq'], 0, _MOST),
        _number(fields['lease_ms'], 0, 2**40) * 1000,
    )


def _decision(fields: Any) -> slots.Decision | None:
    if fields is None:
        return None
    all_slots = _number(fields['slots'], 0, frame.ALL)
    base = _number(fields['base'], 0, frame.ALL)
    if base & ~all_slots:
        raise ValueError(f'base {base} is not within slots {all_slots}')
    return slots.Decision(
        base,
        all_slots,
        _number(fields['wanted'], 1, frame.SLOTS),
        _number(fields['width'], 1, _MOST_CPUS),
        _number(fields['span'], 1, 2**31 - 1),
        _number(fields['epoch'], 0, slots.MAX_EPOCH),
    )


def _lags(fields: Any) -> dict[str, int]:
    if not isinstance(fields, dict) or len(fields) > slots.MAX_LAGS:
        raise TypeError('lags is not a mapping of a few hosts')
    return {
        _name(host): _number(lag_us, -slots.MAX_LAG_US, slots.MAX_LAG_US)
        for host, lag_us in fields.items()
    }


def _name(value: Any) -> str:
    if not isinstance(value, str) or not names.is_name(value):
        raise TypeError(f'{str(value)[:40]!r} is not {names.RULE}')
    return value


def _number(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f'{str(value)[:40]} is not an integer from {least} to {most}'
        )
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f'{str(value)[:40]} is not true or false')
    return value
