# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Reads status documents for ``nova-vhpc-top``. Pure.

A document may come from an agent of another version. What that one does not
tell is unknown; what cannot be read is an error.
"""

from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent import errors, health
from nova_vhpc.top.model import (
    RECEIVED_ENOUGH,
    Host,
    Server,
    Snapshot,
    State,
)
from nova_vhpc.top.sources import Answers

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
    agent = document['agent']
    # Agents of earlier versions have none.
    judged = document.get('health') or {}
    uplinks = document.get('publishing') or {}
    marks = (
        ('DRY RUN', agent['dry_run']),
        ('PAUSED', agent['paused']),
        ('NO LIBVIRT', not agent['libvirt_up']),
        ('NOT HEALTHY', not judged.get('healthy', True)),
    )
    left_alone = agent.get('refused', {}).items()
    problems = [f'{uuid}: left alone: {reason}' for uuid, reason in left_alone]
    problems += map(_line, agent.get('remarks', ()))
    problems += health.sentences(judged) if judged else _problems(document)
    return Host(
        name=_line(agent['host']),
        cpus=_line(agent['cpus']),
        marks=tuple(word for word, on in marks if on),
        tick_us=_number(agent['tick_us']),
        period_us=float(agent['period_us']),
        missed=int(agent['overruns']),
        uplinks=_line(uplinks.get('state', 'off')),
        windows=_windows(document),
        bus=_bus(document),
        problems=tuple(map(_line, problems)),
    )


def _problems(document: Document) -> list[str]:
    """Return what an agent of an earlier version, without health, says."""
    uplinks = document.get('publishing') or {}
    lines = []
    for name, part in (
        ('uplinks', uplinks),
        ('metrics', document.get('metrics') or {}),
    ):
        if part.get('detail'):
            lines.append(f'{name}: {part["state"]}: {part["detail"]}')
    return lines + [f'uplinks: {p}' for p in uplinks.get('problems', ())]


def _bus(document: Document) -> str:
    peers = document.get('peers') or {}
    words = _line(peers.get('state', 'off'))
    if peers.get('state') == 'up' and peers.get('echo_us') is not None:
        return f'{words}, echo in {float(peers["echo_us"]) / 1000:.1f} ms'
    return (
        _line(f'{words}: {peers["detail"]}') if peers.get('detail') else words
    )


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
    cluster, pins = vm.get('cluster'), vm['vcpu_pins'] or []
    return Server(
        host=host,
        uuid=uuid,
        # Agents of earlier versions do not tell the server's name.
        name=_line(vm.get('server_name') or vm['name']),
        domain=_line(vm['name']),
        cluster=None if cluster is None else _line(cluster),
        workload=_line(vm['workload']),
        phase=None if vm['phase'] is None else _line(vm['phase']),
        state=_state(vm),
        vcpus=int(vm.get('vcpus') or len(pins)),
        cpu=None if run_us is None else run_us / period_us,
        received=_number(vm.get('received')),
        latency_us=_number(vm['sync_latency_us']),
        io_events=_number(vm['io_events']),
        slice_us=_number(vm['slice_us']),
        period_us=_number(vm['period_us']),
        quota_us=_number(vm['quota_us']),
        shares=None if vm['shares'] is None else int(vm['shares']),
        window_us=widths_us.get(uuid),
        pins=tuple(map(_line, pins)),
        writes=int(vm['writes']),
        moves=int(vm.get('moves') or 0),
        note=_note(vm),
    )


def _state(vm: Document) -> State:
    received = _number(vm.get('received'))
    if vm['problem'] or vm.get('quarantined'):
        return State.FAILING
    if received is not None and received < RECEIVED_ENOUGH:
        return State.SHORT
    if vm['released'] or vm['hands_off']:
        return State.ALONE
    return State.WAITING if vm['phase'] is None else State.OK


def _note(vm: Document) -> str:
    """Return why a VM is as it is, what is wrong first."""
    words = [
        vm['problem'] or vm['hands_off'] or vm['reason'],
        # Agents of earlier versions have none.
        *vm.get('remarks', ()),
    ]
    if vm['released']:
        words.insert(0, f'external change: {", ".join(vm["released"])}')
    return _line('; '.join(filter(None, words)))


def _line(text: object) -> str:
    """Return a text in one line, without what would steer a terminal."""
    line = ' '.join(str(text).split())
    return ''.join(
        one if one.isprintable() else '\N{REPLACEMENT CHARACTER}'
        for one in line
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
