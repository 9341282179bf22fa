# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Messages about slots, as they travel over the bus.

``doc/source/reference/rpc.rst`` describes the fields.
"""

from typing import Any

from nova_vhpc.agent.clusters import protocol
from nova_vhpc.control.slots import frame, messages


def encode(message: messages.Message) -> dict[str, Any]:
    """Return the fields of a message as they are sent."""
    report = message.report
    fields: dict[str, Any] = {
        'cluster': message.cluster,
        'host': message.host,
        'boot': message.boot,
        'seq': message.seq,
        'lease_ms': message.lease_us // 1000,
        'wanted': report.wanted,
        'blocked': report.blocked,
        'avoided': report.avoided,
        'plays': report.plays,
        'ready': report.ready,
        'wall_us': message.wall_us,
        'lags': dict(message.lags),
        'slot_us': message.slot_us,
    }
    decision = report.decision
    if decision is not None:
        fields['decision'] = {
            'first': None if decision.place is None else decision.place.first,
            'every': None if decision.place is None else decision.place.every,
            'wanted': decision.wanted,
            'span': decision.span,
            'epoch': decision.epoch,
        }
    return fields


def decode(fields: dict[str, Any]) -> messages.Message:
    """Return the message that has these fields.

    Unknown fields are ignored: they belong to newer versions.

    :raises KeyError, TypeError, ValueError: the fields are invalid.
    """
    return messages.Message(
        _name(fields['cluster']),
        _name(fields['host']),
        _number(fields['boot'], 0, 2**63 - 1),
        _number(fields['seq'], 0, 2**63 - 1),
        _number(fields['lease_ms'], 0, 2**40) * 1000,
        messages.Report(
            _count(fields['wanted']),
            _number(fields['blocked'], 0, frame.ALL),
            _number(fields['avoided'], 0, frame.ALL),
            _flag(fields['plays']),
            _flag(fields['ready']),
            _decision(fields.get('decision')),
        ),
        _number(fields['wall_us'], 0, 2**63 - 1),
        _lags(fields['lags']),
        # Agents of the first release with slots do not say it.
        _number(fields.get('slot_us', 0), 0, 2**40),
    )


def _decision(fields: Any) -> messages.Decision | None:
    if fields is None:
        return None
    place = None
    if fields['every'] is not None:
        every = _count(fields['every'])
        place = frame.Place(_number(fields['first'], 0, every - 1), every)
    return messages.Decision(
        place,
        _count(fields['wanted']),
        _number(fields['span'], 1, 2**31 - 1),
        _number(fields['epoch'], 0, messages.MAX_EPOCH),
    )


def _lags(fields: Any) -> dict[str, int]:
    if not isinstance(fields, dict) or len(fields) > messages.MAX_LAGS:
        raise TypeError('lags is not a mapping of a few hosts')
    return {
        _name(host): _number(lag_us, -messages.MAX_LAG_US, messages.MAX_LAG_US)
        for host, lag_us in fields.items()
    }


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > protocol.MAX_NAME:
        raise TypeError(
            f'{str(value)[: protocol.MAX_NAME]!r} is not a string of at most '
            f'{protocol.MAX_NAME} characters'
        )
    return value


def _number(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f'{str(value)[:40]} is not an integer from {least} to {most}'
        )
    return value


def _count(value: Any) -> int:
    if _number(value, 1, frame.SLOTS) not in frame.COUNTS:
        raise ValueError(f'{value} is not one of {frame.COUNTS}')
    return int(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f'{str(value)[:40]} is not true or false')
    return value
