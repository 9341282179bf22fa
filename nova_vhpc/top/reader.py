# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read status documents for ``nova-vhpc-top``.

What a document does not tell is unknown; what cannot be read, as of an agent
of another version, is an error.
"""

from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent import errors, health
from nova_vhpc.control import model
from nova_vhpc.top.model import RECEIVED_ENOUGH, Host, Server, Snapshot, State
from nova_vhpc.top.sources import Answers

MISSED_MANY = 0.01
"""Part of control periods that must be missed before the host says so."""

Document = Mapping[str, Any]


def snapshot(answers: Answers) -> Snapshot:
    """Return what is shown of the answers of agents.

    :raises Exception: one of :data:`.errors.UNREADABLE`, if no answer can be
        read.
    """
    missing = dict(answers.missing)
    hosts: list[Host] = []
    servers: list[Server] = []
    for name, document in answers.documents.items():
        try:
            host, found = _host(document), _servers(document)
        except errors.UNREADABLE as error:
            if len(answers.documents) == 1:
                raise
            missing[name] = errors.unreadable(error)
            continue
        hosts.append(host)
        servers += found
    cluster = answers.cluster
    if cluster is not None:
        servers = [one for one in servers if one.cluster == cluster]
    return Snapshot(hosts, servers, cluster, missing, answers.remarks)


def _host(document: Document) -> Host:
    agent, judged = document['agent'], document['health']
    uplinks = document.get('publishing') or {}
    ticks, missed = int(agent['ticks']), int(agent['overruns'])
    period_us = float(agent['period_us'])
    echo_us = _echo_us(document)
    marks = (
        ('DRY RUN', agent['dry_run']),
        ('PAUSED', agent['paused']),
        ('NO LIBVIRT', not agent['libvirt_up']),
        ('NOT HEALTHY', not judged['healthy']),
        ('MISSES TICKS', missed > MISSED_MANY * (ticks + missed)),
        ('SLOW MESSAGE BUS', echo_us is not None and echo_us > period_us),
    )
    left_alone = agent['refused'].items()
    problems = [f'{uuid}: left alone: {reason}' for uuid, reason in left_alone]
    problems += [*agent['remarks'], *health.sentences(judged)]
    return Host(
        name=_line(agent['host']),
        cpus=_line(agent['cpus']),
        marks=tuple(word for word, on in marks if on),
        tick_us=_number(agent['tick_us']),
        period_us=period_us,
        ticks=ticks,
        missed=missed,
        uplinks=_line(uplinks.get('state', 'off')),
        windows=_windows(document),
        bus=_bus(document),
        problems=tuple(map(_line, problems)),
    )


def _echo_us(document: Document) -> float | None:
    """Return the travel time of the last echo; None if the bus is not up."""
    peers = document.get('peers') or {}
    return (
        _number(peers.get('echo_us')) if peers.get('state') == 'up' else None
    )


def _bus(document: Document) -> str:
    peers = document.get('peers') or {}
    state, echo_us = peers.get('state', 'off'), _echo_us(document)
    if echo_us is not None:
        return _line(f'{state}, echo in {echo_us / 1000:.1f} ms')
    detail = peers.get('detail')
    return _line(f'{state}: {detail}' if detail else state)


def _turns(document: Document) -> list[tuple[float, frozenset[str]]]:
    """Return length and favoured VMs of the gang windows that are played."""
    windows = document.get('windows') or {}
    if not windows.get('playing'):
        return []
    return [
        (float(turn['width_us']), frozenset(map(str, turn['favoured'])))
        for turn in windows.get('turns') or []
    ]


def _windows(document: Document) -> str:
    turns = _turns(document)
    if not turns:
        return 'none'
    return ', '.join(f'{width_us / 1000:g}' for width_us, _ in turns) + ' ms'


def _servers(document: Document) -> list[Server]:
    agent = document['agent']
    host, period_us = _line(agent['host']), float(agent['period_us'])
    widths_us = {
        uuid: width_us
        for width_us, favoured in _turns(document)
        for uuid in favoured
    }
    return [_server(vm, host, period_us, widths_us) for vm in document['vms']]


def _server(
    vm: Document,
    host: str,
    period_us: float,
    widths_us: Mapping[str, float],
) -> Server:
    uuid, run_us = str(vm['uuid']), _number(vm['run_us'])
    cluster = vm['cluster']
    return Server(
        host=host,
        uuid=uuid,
        name=_line(vm['server_name'] or vm['name']),
        domain=_line(vm['name']),
        cluster=None if cluster is None else _line(cluster),
        workload=_line(vm['workload']),
        phase=None if vm['phase'] is None else _line(vm['phase']),
        state=_state(vm),
        vcpus=int(vm['vcpus']),
        cpu=None if run_us is None else run_us / period_us,
        received=_number(vm['received']),
        latency_us=_number(vm['sync_latency_us']),
        io_events=_number(vm['io_events']),
        slice_us=_number(vm['slice_us']),
        period_us=_number(vm['period_us']),
        quota_us=_number(vm['quota_us']),
        shares=None if vm['shares'] is None else int(vm['shares']),
        window_us=widths_us.get(uuid),
        pins=tuple(map(_line, vm['vcpu_pins'] or ())),
        writes=int(vm['writes']),
        moves=int(vm['moves']),
        note=_note(vm),
    )


def _state(vm: Document) -> State:
    received = _number(vm['received'])
    if vm['problem'] or vm['quarantined']:
        return State.FAILING
    if received is not None and received < RECEIVED_ENOUGH:
        return State.SHORT
    if vm['released'] or vm['hands_off']:
        return State.ALONE
    if vm['phase'] is None:
        return State.WAITING
    return State.SPINNING if _advice(vm) else State.OK


def _note(vm: Document) -> str:
    """Return why a VM is as it is, what is wrong first."""
    words = [
        vm['problem'] or vm['hands_off'] or vm['reason'],
        _advice(vm),
        *vm['remarks'],
    ]
    if vm['released']:
        words.insert(0, f'external change: {", ".join(vm["released"])}')
    return _line('; '.join(filter(None, words)))


def _advice(vm: Document) -> str:
    """Return what to do about a program that spins; empty for others."""
    waiting = vm.get('waiting') or {}
    if waiting.get('state') != model.WaitState.HELD_UP:
        return ''
    return f'{waiting["finding"]}: {waiting["remedy"]}'


def _line(text: object) -> str:
    """Return a text in one line, without what would steer a terminal."""
    line = ' '.join(str(text).split())
    return ''.join(
        one if one.isprintable() else '\N{REPLACEMENT CHARACTER}'
        for one in line
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
