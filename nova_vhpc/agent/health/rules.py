# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Judge the health of each part of the agent by the status document.

By the document alone, so that what is served by the status socket, the
metrics, the log and the upgrade check cannot disagree. An agent with VMs that
nobody names, that no probe measures, or that it cannot write to is never
healthy, whatever the reason.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_NAMED_VMS = 3
"""Most VMs that a sentence names."""

_STARTED_TICKS = 100
"""Ticks, ten seconds by default, within which libvirt should be connected."""

Document = Mapping[str, Any]


class State(enum.StrEnum):
    """State of a part, best first.

    OFF: not configured, and not missed. DEGRADED: works in part, or for some
    VMs only.
    """

    OK = 'ok'
    OFF = 'off'
    STARTING = 'starting'
    DEGRADED = 'degraded'
    FAILED = 'failed'

    @property
    def healthy(self) -> bool:
        """Whether nothing needs to be done."""
        return self in (State.OK, State.OFF, State.STARTING)


@dataclasses.dataclass(frozen=True, slots=True)
class PartHealth:
    """The health of one part.

    :ivar what: what is off; empty if nothing is.
    :ivar action: what to do about it.
    """

    state: State
    what: str = ''
    action: str = ''


OK = PartHealth(State.OK)
OFF = PartHealth(State.OFF)
STARTING = PartHealth(State.STARTING)


def assess(document: Document) -> dict[str, PartHealth]:
    """Return the health of each part, by name.

    :param document: the status document, see
        :mod:`nova_vhpc.agent.daemon.status`; what an agent of
        another version does not have counts as well.
    """
    return {part: judge(document) for part, judge in _PARTS.items()}


def worst(parts: Iterable[PartHealth]) -> State:
    """Return the state of all parts together: ok, degraded or failed."""
    states = {part.state for part in parts}
    for state in (State.FAILED, State.DEGRADED):
        if state in states:
            return state
    return State.OK


def _failed(what: str, action: str) -> PartHealth:
    return PartHealth(State.FAILED, what, action)


def _degraded(what: str, action: str) -> PartHealth:
    return PartHealth(State.DEGRADED, what, action)


def _agent(document: Document) -> Document:
    return document.get('agent') or {}


def _vms(document: Document) -> Sequence[Document]:
    return document.get('vms') or ()


def _named(names: Iterable[str]) -> str:
    """Return the number of VMs, and the names of the first of them."""
    ordered = sorted(names)
    first = ', '.join(ordered[:_NAMED_VMS])
    more = ', ...' if len(ordered) > _NAMED_VMS else ''
    return f'{len(ordered)} VMs ({first}{more})'


def _libvirt(document: Document) -> PartHealth:
    agent = _agent(document)
    if agent.get('libvirt_up', True):
        return OK
    if not agent.get('reconnects') and agent.get('ticks', 0) < _STARTED_TICKS:
        return STARTING
    return _failed(
        'libvirt is not connected, so VMs are neither found nor written to',
        'check libvirtd (virtqemud where the daemons are modular) and '
        '[vhpc_agent]libvirt_uri',
    )


def _decisions(document: Document) -> PartHealth:
    agent = _agent(document)
    if agent.get('tick_problem'):
        return _failed(
            f'control periods end in an error: {agent["tick_problem"]}',
            'see the traceback in the log of the agent; a plugin may cause it',
        )
    if agent.get('remarks'):
        return _degraded(
            '; '.join(agent['remarks']),
            'check [vhpc_control] and the log of the agent',
        )
    return OK if agent.get('ticks', 1) else STARTING


def _journal(document: Document) -> PartHealth:
    problem = _agent(document).get('journal_problem')
    if not problem:
        return OK
    return _failed(
        problem,
        'check [vhpc_agent]state_path: free space, owner and mode',
    )


def _writes(document: Document) -> PartHealth:
    agent = _agent(document)
    vms = _vms(document)
    refused = agent.get('refused') or {}
    failing = {vm['name']: vm['problem'] for vm in vms if vm.get('problem')}
    if vms and agent.get('paused'):
        return _degraded(
            f'paused: {len(vms)} VMs have their original settings',
            'run nova-vhpc-ctl resume when the reason is over',
        )
    if failing:
        name = min(failing)
        return PartHealth(
            State.FAILED if len(failing) == len(vms) else State.DEGRADED,
            f'{_named(failing)} cannot be written to ({name}: '
            f'{failing[name]})',
            'the agent tries again; see "A VM is in quarantine" in the '
            'troubleshooting guide',
        )
    if refused:
        uuid = min(refused)
        return _degraded(
            f'{_named(refused)} are left alone ({uuid}: {refused[uuid]})',
            'mend what the reason names; the agent looks again by itself',
        )
    if vms and agent.get('dry_run'):
        return _degraded(
            f'dry run: nothing is written to {len(vms)} VMs',
            'turn off [vhpc_agent]dry_run when the plans are as you want',
        )
    return OK


def _probes(document: Document) -> PartHealth:
    agent = _agent(document)
    vms = _vms(document)
    unmeasured = [vm for vm in vms if vm.get('unmeasured')]
    unusable = agent.get('unusable_probes') or {}
    reasons = '; '.join(f'{name}: {unusable[name]}' for name in unusable)
    if unmeasured:
        missing = ' and '.join(
            sorted(
                {
                    _MEASURES.get(m, m)
                    for vm in unmeasured
                    for m in vm['unmeasured']
                }
            )
        )
        blind = all('latency' in vm.get('unmeasured', ()) for vm in vms)
        lost = [vm['name'] for vm in unmeasured if not vm.get('pid')]
        if lost:
            action = (
                f'the QEMU process of {_named(lost)} is not found: the agent '
                "must see the host's process IDs and control groups (in a "
                'container, pid: host and cgroupns_mode: host)'
            )
        else:
            action = reasons or 'see the log of the agent for failed probes'
        return PartHealth(
            State.FAILED if blind else State.DEGRADED,
            f'no probe measures {missing} of '
            f'{_named(vm["name"] for vm in unmeasured)}',
            action,
        )
    if 'probes' in agent and not agent['probes']:
        return PartHealth(
            State.FAILED if vms or unusable else State.OFF,
            'no probe is in use, so nothing can be measured',
            reasons or 'check [vhpc_agent]sync_probes and io_probes',
        )
    return OK


_MEASURES = {'latency': 'the synchronisation latency', 'io_events': 'I/O'}


def _control_groups(document: Document) -> PartHealth:
    hidden = [
        vm['name']
        for vm in _vms(document)
        if vm.get('pid') and not vm.get('control_group', True)
    ]
    if not hidden:
        return OK
    return _degraded(
        f'the control groups of {_named(hidden)} are not found: weights are '
        'written by libvirt, which takes longer, and limits such as '
        'AllowedCPUs= of machine.slice are unknown',
        "in a container, mount the host's /sys/fs/cgroup and use "
        'cgroupns_mode: host; check [vhpc_agent]cgroup_root',
    )


def _windows(document: Document) -> PartHealth:
    windows = document.get('windows') or {}
    agent = _agent(document)
    if windows.get('failing'):
        return _degraded(
            f'the weights of {_named(windows["failing"])} cannot be written '
            'in time, so their gang windows are skipped',
            'see the log of the agent; is libvirtd overloaded?',
        )
    held = agent.get('paused') or agent.get('dry_run')
    if windows.get('turns') and not windows.get('playing', True) and not held:
        return _failed(
            'gang windows are planned and not played',
            'see the log of the agent',
        )
    return OK


def _groups(document: Document) -> PartHealth:
    groups = document.get('groups') or {}
    state = groups.get('state', 'off')
    detail = groups.get('detail') or ''
    parallel = [
        vm for vm in _vms(document) if vm.get('workload') == 'parallel'
    ]
    nameless = [vm['name'] for vm in parallel if not vm.get('cluster')]
    if state == 'failed':
        return _failed(detail, 'see the log of the agent')
    if state == 'nova-away':
        return PartHealth(
            State.FAILED if groups.get('age_s') is None else State.DEGRADED,
            f'Nova does not say which cluster a VM is in: {detail}',
            'check [vhpc_nova] and nova-api',
        )
    if state == 'partial':
        return _degraded(
            detail,
            'see "Nova names none" in the troubleshooting guide',
        )
    if groups.get('file_problem'):
        return _degraded(
            groups['file_problem'],
            'mend the file; it is read again by itself',
        )
    if state == 'starting':
        return STARTING
    if (
        state in ('off', 'file')
        and nameless
        and (state == 'off' or len(nameless) == len(parallel))
    ):
        return _degraded(
            f'nobody says which cluster {_named(nameless)} are in',
            'let the agent ask Nova ([vhpc_nova]auth_type and credentials), '
            'or name the VMs in [vhpc_nova]groups_file',
        )
    return OFF if state == 'off' else OK


def _publishing(document: Document) -> PartHealth:
    publishing = document.get('publishing') or {}
    state = publishing.get('state', 'off')
    problems = publishing.get('problems') or ()
    if state not in ('off', 'dry-run', 'starting', 'published'):
        return _failed(
            f'uplinks are not published ({state}): {publishing.get("detail")}',
            'see "States" in the guide on bridges and uplinks',
        )
    if problems:
        return _degraded(
            '; '.join(problems),
            'correct [vhpc_topology]bridges, or the host',
        )
    if state == 'starting':
        return STARTING
    return OK if state == 'published' else OFF


def _bus(document: Document) -> PartHealth:
    peers = document.get('peers') or {}
    state = peers.get('state', 'off')
    if state == 'down':
        return _degraded(
            f'the message bus is away: {peers.get("detail")}; each host '
            'decides by itself',
            'check the broker and transport_url',
        )
    if state == 'up' and peers.get('detail'):
        return _degraded(
            f'phases are not exchanged for all clusters: {peers["detail"]}',
            'see "What the broker holds" in the guide on clusters and peers',
        )
    return {'off': OFF, 'starting': STARTING}.get(state, OK)


def _slots(document: Document) -> PartHealth:
    slots = (document.get('peers') or {}).get('slots') or {}
    if slots.get('detail'):
        return _degraded(
            f'not all hosts agree on cluster slots: {slots["detail"]}',
            'synchronise the clocks of all hosts, by chrony or NTP; set '
            '[vhpc_control]gang_window_us to the same value on all',
        )
    return OFF if slots.get('state', 'off') == 'off' else OK


def _binding(document: Document) -> PartHealth:
    binding = document.get('binding')
    if binding is None:
        return OFF
    problems = binding.get('problems') or {}
    if not problems:
        return OFF if binding.get('state') == 'off' else OK
    unsteered = binding.get('unsteered') or {}
    # One VM for each cause.
    examples = {
        unsteered.get(uuid, {}).get('cause', problems[uuid]): uuid
        for uuid in sorted(problems, reverse=True)
    }
    reasons, remedies = [], []
    for uuid in sorted(examples.values())[:_NAMED_VMS]:
        one = unsteered.get(uuid) or {'what': problems[uuid]}
        reasons.append(f'{one.get("name", uuid)}: {one["what"]}')
        remedies.append(one.get('remedy') or 'the agent tries again')
    return _degraded(
        f'claims on uplinks do not steer the packets of {_named(problems)}: '
        + '; '.join(reasons),
        '. '.join(dict.fromkeys(remedies))
        + ' (see the guide "Packets that take the claimed uplink")',
    )


def _metrics(document: Document) -> PartHealth:
    metrics = document.get('metrics') or {}
    state = metrics.get('state', 'off')
    if state == 'down':
        return _degraded(
            f'no metrics are served: {metrics.get("detail")}',
            'the agent tries again; what else uses the port?',
        )
    return OFF if state == 'off' else OK


_PARTS: Mapping[str, Callable[[Document], PartHealth]] = {
    'libvirt': _libvirt,
    'decisions': _decisions,
    'journal': _journal,
    'writes': _writes,
    'probes': _probes,
    'control_groups': _control_groups,
    'windows': _windows,
    'groups': _groups,
    'publishing': _publishing,
    'bus': _bus,
    'slots': _slots,
    'binding': _binding,
    'metrics': _metrics,
}
"""The judges by name of the part; the names are labels of the metric."""
