# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Judges the health of each part of the agent by the status document. Pure.

By the document alone, so that what is served by the status socket, the
metrics, the log and the upgrade check cannot disagree. An agent with VMs that
nobody names, that no probe measures, or that it cannot write to is never
healthy, whatever the reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from nova_vhpc.agent.daemon import health

_NAMED_VMS = 3
"""Most VMs that a sentence names."""

_STARTED_TICKS = 100
"""Ticks, ten seconds by default, within which libvirt should be connected."""


def assess(document: health.Document) -> dict[str, health.PartHealth]:
    """Return the health of each part, by name.

    :param document: the status document, see :mod:`.status`; what an agent of
        another version does not have counts as well.
    """
    return {part: judge(document) for part, judge in _PARTS.items()}


def _agent(document: health.Document) -> health.Document:
    return document.get('agent') or {}


def _vms(document: health.Document) -> Sequence[health.Document]:
    return document.get('vms') or ()


def _named(names: Iterable[str]) -> str:
    """Return the number of VMs, and the names of the first of them."""
    ordered = sorted(names)
    first = ', '.join(ordered[:_NAMED_VMS])
    more = ', ...' if len(ordered) > _NAMED_VMS else ''
    return f'{len(ordered)} VMs ({first}{more})'


def _libvirt(document: health.Document) -> health.PartHealth:
    agent = _agent(document)
    if agent.get('libvirt_up', True):
        return health.OK
    if not agent.get('reconnects') and agent.get('ticks', 0) < _STARTED_TICKS:
        return health.STARTING
    return health.PartHealth(
        health.State.FAILED,
        'libvirt is not connected, so VMs are neither found nor written to',
        'check libvirtd (virtqemud where the daemons are modular) and '
        '[vhpc_agent]libvirt_uri',
    )


def _decisions(document: health.Document) -> health.PartHealth:
    agent = _agent(document)
    if agent.get('tick_problem'):
        return health.PartHealth(
            health.State.FAILED,
            f'control periods end in an error: {agent["tick_problem"]}',
            'see the traceback in the log of the agent; a plugin may cause it',
        )
    if agent.get('remarks'):
        return health.PartHealth(
            health.State.DEGRADED,
            '; '.join(agent['remarks']),
            'check [vhpc_control] and the log of the agent',
        )
    return health.OK if agent.get('ticks', 1) else health.STARTING


def _journal(document: health.Document) -> health.PartHealth:
    problem = _agent(document).get('journal_problem')
    if not problem:
        return health.OK
    return health.PartHealth(
        health.State.FAILED,
        problem,
        'check [vhpc_agent]state_path: free space, owner and mode',
    )


def _writes(document: health.Document) -> health.PartHealth:
    agent = _agent(document)
    vms = _vms(document)
    refused = agent.get('refused') or {}
    failing = {vm['name']: vm['problem'] for vm in vms if vm.get('problem')}
    if vms and agent.get('paused'):
        return health.PartHealth(
            health.State.DEGRADED,
            f'paused: {len(vms)} VMs have their original settings',
            'run nova-vhpc-ctl resume when the reason is over',
        )
    if failing:
        name = min(failing)
        return health.PartHealth(
            health.State.FAILED
            if len(failing) == len(vms)
            else health.State.DEGRADED,
            f'{_named(failing)} cannot be written to ({name}: '
            f'{failing[name]})',
            'the agent tries again; see "A VM is in quarantine" in the '
            'troubleshooting guide',
        )
    if refused:
        uuid = min(refused)
        return health.PartHealth(
            health.State.DEGRADED,
            f'{_named(refused)} are left alone ({uuid}: {refused[uuid]})',
            'mend what the reason names; the agent looks again by itself',
        )
    if vms and agent.get('dry_run'):
        return health.PartHealth(
            health.State.DEGRADED,
            f'dry run: nothing is written to {len(vms)} VMs',
            'turn off [vhpc_agent]dry_run when the plans are as you want',
        )
    return health.OK


def _probes(document: health.Document) -> health.PartHealth:
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
        return health.PartHealth(
            health.State.FAILED if blind else health.State.DEGRADED,
            f'no probe measures {missing} of '
            f'{_named(vm["name"] for vm in unmeasured)}',
            action,
        )
    if 'probes' in agent and not agent['probes']:
        return health.PartHealth(
            health.State.FAILED if vms or unusable else health.State.OFF,
            'no probe is in use, so nothing can be measured',
            reasons or 'check [vhpc_agent]sync_probes and io_probes',
        )
    return health.OK


_MEASURES = {'latency': 'the synchronisation latency', 'io_events': 'I/O'}


def _control_groups(document: health.Document) -> health.PartHealth:
    hidden = [
        vm['name']
        for vm in _vms(document)
        if vm.get('pid') and not vm.get('control_group', True)
    ]
    if not hidden:
        return health.OK
    return health.PartHealth(
        health.State.DEGRADED,
        f'the control groups of {_named(hidden)} are not found: weights are '
        'written by libvirt, which takes longer, and limits such as '
        'AllowedCPUs= of machine.slice are unknown',
        "in a container, mount the host's /sys/fs/cgroup and use "
        'cgroupns_mode: host; check [vhpc_agent]cgroup_root',
    )


def _windows(document: health.Document) -> health.PartHealth:
    windows = document.get('windows') or {}
    agent = _agent(document)
    if windows.get('failing'):
        return health.PartHealth(
            health.State.DEGRADED,
            f'the weights of {_named(windows["failing"])} cannot be written '
            'in time, so their gang windows are skipped',
            'see the log of the agent; is libvirtd overloaded?',
        )
    held = agent.get('paused') or agent.get('dry_run')
    if windows.get('turns') and not windows.get('playing', True) and not held:
        return health.PartHealth(
            health.State.FAILED,
            'gang windows are planned and not played',
            'see the log of the agent',
        )
    return health.OK


def _groups(document: health.Document) -> health.PartHealth:
    groups = document.get('groups') or {}
    state = groups.get('state', 'off')
    detail = groups.get('detail') or ''
    parallel = [
        vm for vm in _vms(document) if vm.get('workload') == 'parallel'
    ]
    nameless = [vm['name'] for vm in parallel if not vm.get('cluster')]
    if state == 'failed':
        return health.PartHealth(
            health.State.FAILED, detail, 'see the log of the agent'
        )
    if state == 'nova-away':
        return health.PartHealth(
            health.State.FAILED
            if groups.get('age_s') is None
            else health.State.DEGRADED,
            f'Nova does not say which cluster a VM is in: {detail}',
            'check [vhpc_nova] and nova-api',
        )
    if state == 'partial':
        return health.PartHealth(
            health.State.DEGRADED,
            detail,
            'see "Nova names none" in the troubleshooting guide',
        )
    if groups.get('file_problem'):
        return health.PartHealth(
            health.State.DEGRADED,
            groups['file_problem'],
            'mend the file; it is read again by itself',
        )
    if state == 'starting':
        return health.STARTING
    if (
        state in ('off', 'file')
        and nameless
        and (state == 'off' or len(nameless) == len(parallel))
    ):
        return health.PartHealth(
            health.State.DEGRADED,
            f'nobody says which cluster {_named(nameless)} are in',
            'let the agent ask Nova ([vhpc_nova]auth_type and credentials), '
            'or name the VMs in [vhpc_nova]groups_file',
        )
    return health.OFF if state == 'off' else health.OK


def _publishing(document: health.Document) -> health.PartHealth:
    publishing = document.get('publishing') or {}
    state = publishing.get('state', 'off')
    problems = publishing.get('problems') or ()
    if state not in ('off', 'dry-run', 'starting', 'published'):
        return health.PartHealth(
            health.State.FAILED,
            f'uplinks are not published ({state}): {publishing.get("detail")}',
            'see "States" in the guide on bridges and uplinks',
        )
    if problems:
        return health.PartHealth(
            health.State.DEGRADED,
            '; '.join(problems),
            'correct [vhpc_topology]bridges, or the host',
        )
    if state == 'starting':
        return health.STARTING
    return health.OK if state == 'published' else health.OFF


def _bus(document: health.Document) -> health.PartHealth:
    peers = document.get('peers') or {}
    state = peers.get('state', 'off')
    if state == 'down':
        return health.PartHealth(
            health.State.DEGRADED,
            f'the message bus is away: {peers.get("detail")}; each host '
            'decides by itself',
            'check the broker and transport_url',
        )
    if state == 'up' and peers.get('detail'):
        return health.PartHealth(
            health.State.DEGRADED,
            f'phases are not exchanged for all clusters: {peers["detail"]}',
            'see "What the broker holds" in the guide on clusters and peers',
        )
    return {'off': health.OFF, 'starting': health.STARTING}.get(
        state, health.OK
    )


def _slots(document: health.Document) -> health.PartHealth:
    slots = (document.get('peers') or {}).get('slots') or {}
    if slots.get('detail'):
        return health.PartHealth(
            health.State.DEGRADED,
            f'not all hosts agree on cluster slots: {slots["detail"]}',
            'synchronise the clocks of all hosts, by chrony or NTP; set '
            '[vhpc_control]gang_window_us to the same value on all',
        )
    return health.OFF if slots.get('state', 'off') == 'off' else health.OK


def _binding(document: health.Document) -> health.PartHealth:
    binding = document.get('binding')
    if binding is None:
        return health.OFF
    problems = binding.get('problems') or {}
    if not problems:
        return health.OFF if binding.get('state') == 'off' else health.OK
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
    return health.PartHealth(
        health.State.DEGRADED,
        f'claims on uplinks do not steer the packets of {_named(problems)}: '
        + '; '.join(reasons),
        '. '.join(dict.fromkeys(remedies))
        + ' (see the guide "Packets that take the claimed uplink")',
    )


def _metrics(document: health.Document) -> health.PartHealth:
    metrics = document.get('metrics') or {}
    state = metrics.get('state', 'off')
    if state == 'down':
        return health.PartHealth(
            health.State.DEGRADED,
            f'no metrics are served: {metrics.get("detail")}',
            'the agent tries again; what else uses the port?',
        )
    return health.OFF if state == 'off' else health.OK


_PARTS: Mapping[str, Callable[[health.Document], health.PartHealth]] = {
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
