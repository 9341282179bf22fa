# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The checks of ``nova-vhpc-status upgrade check``.

Each check takes facts about the host and returns what is wrong and what to do.
A part that this host does not have (nova, libvirt) is no failure, because the
same command runs on controllers and on compute nodes.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from oslo_upgradecheck import upgradecheck

from nova_vhpc.topology import model

NOVA_MAJORS = {33: '2026.1', 34: '2026.2'}
"""Releases of OpenStack that this release is made for, by nova's major."""

LIBVIRT_MINIMUM = (9, 0, 0)

Result = upgradecheck.Result
Code = upgradecheck.Code


def success(details: str | None = None) -> Result:
    """Return the result of a check that found no fault."""
    return Result(Code.SUCCESS, details)


def warning(details: str) -> Result:
    """Return the result for a fault with which nova-vhpc still works."""
    return Result(Code.WARNING, details)


def failure(details: str) -> Result:
    """Return the result for a fault with which nova-vhpc does not work.

    :param details: what is wrong and what to do.
    """
    return Result(Code.FAILURE, details)


def options(unknown: Sequence[str], invalid: str | None = None) -> Result:
    """Check the options in the configuration files.

    :param unknown: one sentence for each option or group that is unknown.
    :param invalid: first value that our services refuse, and why; or None.
    """
    if invalid is not None:
        consequence = 'services that read this option do not start'
        return failure('; '.join([f'{invalid}; {consequence}', *unknown]))
    return warning('; '.join(unknown)) if unknown else success()


def nova_version(version: str | None) -> Result:
    """Check that the installed nova is a release that we are made for.

    :param version: version of nova; None if it is not installed.
    """
    if version is None:
        return success('nova is not installed here: agent only.')
    match = re.match('[0-9]+', version)
    major = int(match.group()) if match else 0
    oldest, newest = min(NOVA_MAJORS), max(NOVA_MAJORS)
    if major < oldest:
        return failure(
            f'nova {version} is older than {oldest}.0.0 '
            f'({NOVA_MAJORS[oldest]}). Upgrade nova first.'
        )
    if major > newest:
        return warning(
            f'nova {version} is newer than the {newest}.x that this '
            'release was tested with. Look for a newer nova-vhpc.'
        )
    return success(f'nova {version}')


def placement(
    hosts: int,
    stamps: Mapping[str, int],
    now_s: float,
    max_age_s: int,
    cut_off: int = 0,
    unseen: int = 0,
) -> Result:
    """Check that the agents have published, and that Nova sees all hosts.

    :param hosts: number of resource providers with ``CUSTOM_VHPC_HOST``.
    :param stamps: by host, the time stamp of its marker provider, in minutes.
    :param now_s: present time, in seconds since the epoch.
    :param max_age_s: ``[vhpc_scheduler]topology_max_age``, in seconds; 0 for
        no limit.
    :param cut_off: number of hosts that published, but that Placement leaves
        out of its answer.
    :param unseen: number of hosts with free uplinks that Nova does not see if
        a server is in no server group.
    """
    if hosts == 0:
        return warning(
            'Placement answers, but no host has the trait '
            f'{model.TRAIT_HOST}: no agent has published its uplinks yet.'
        )
    if cut_off:
        return warning(
            f'Placement leaves {cut_off} of {hosts} hosts out of its answer, '
            'so nova-scheduler takes them for hosts without an agent. Set '
            '[placement] max_allocation_candidates in placement.conf to -1, '
            'or to more than the number of compute hosts.'
        )
    limit = model.stamp(now_s - max_age_s)
    stale = sorted(
        host for host, stamp in stamps.items() if max_age_s and stamp < limit
    )
    silent = hosts - len(stamps)
    if stale or silent > 0:
        named = ', '.join(stale[:5]) + (' ...' if len(stale) > 5 else '')
        return warning(
            f'{len(stale)} of {hosts} hosts have published nothing for '
            f'{max_age_s} s ({named or "none"}), and {max(silent, 0)} '
            'no stamp at all. Check nova-vhpc-agent on these hosts.'
        )
    if unseen:
        return warning(
            f'{unseen} hosts have free uplinks that Nova does not see if a '
            'server is in no server group: it asks for [scheduler] '
            'max_placement_results candidates only, and there is one for '
            'each free uplink. Raise it above their number, or boot clusters '
            'with a server group.'
        )
    return success(f'{hosts} hosts, all fresh.')


def placement_away(reason: str) -> Result:
    """Return the result if Placement did not answer.

    :param reason: error text, with the option to change.
    """
    return failure(
        f'Placement cannot be asked: {reason.rstrip(".?")}. Compare '
        '[placement] in nova-vhpc.conf with that in nova.conf.'
    )


def libvirt(version: int | None, reason: str = '') -> Result:
    """Check that libvirt answers and is recent enough.

    :param version: version as ``getLibVersion`` returns it; None if libvirt
        did not answer.
    :param reason: error text if libvirt did not answer.
    """
    if version is None:
        return failure(
            f'libvirt cannot be asked: {reason}. Is libvirtd running, and is '
            '[vhpc_agent]libvirt_uri right?'
        )
    found = (version // 1_000_000, version // 1_000 % 1_000, version % 1_000)
    text = '.'.join(str(part) for part in found)
    if found < LIBVIRT_MINIMUM:
        least = '.'.join(str(part) for part in LIBVIRT_MINIMUM)
        return failure(f'libvirt {text} is older than {least}.')
    return success(f'libvirt {text}')


def agent_not_installed(reason: str) -> Result:
    """Return the result for a compute host that cannot run the agent.

    :param reason: error text of the import that failed.
    """
    return failure(
        f'this host has a hypervisor, but the agent cannot be loaded: '
        f'{reason}. Install the extra "agent": '
        "pip install 'nova-vhpc[agent]'."
    )


def libvirt_hook(program: str | None, runs: bool) -> Result:
    """Check that libvirt can run our hook, if it is installed.

    :param program: program that the hook script calls; None if there is no
        script.
    :param runs: whether script and program are executable.
    """
    if program is None:
        return success(
            'not installed; members that migrate live need it '
            '(installation guide, "libvirt hook").'
        )
    if not runs:
        return warning(
            f'installed, but it has no effect: it is not executable, or there '
            f"is no '{program}'. Install it again as described in the "
            'installation guide ("libvirt hook").'
        )
    return success()


def cgroup(controllers: Collection[str]) -> Result:
    """Check the controllers cpu (period, quota, shares) and cpuset (pins).

    :param controllers: usable controllers, of cgroup v1 or v2.
    """
    missing = sorted({'cpu', 'cpuset'} - set(controllers))
    if missing:
        return failure(
            f'the cgroup controllers {", ".join(missing)} cannot be used, so '
            'libvirt cannot set cputune. On cgroup v2 they must be listed in '
            'cgroup.controllers of the root.'
        )
    return success()


def tick(hz: int | None, effective_min_slice_us: int) -> Result:
    """Check how short a time slice this kernel supports.

    :param hz: tick rate of the kernel (CONFIG_HZ), in Hz; None if unknown.
    :param effective_min_slice_us: shortest effective slice, in microseconds.
    """
    if hz is None:
        return warning(
            'the tick rate (CONFIG_HZ) of this kernel cannot be read; the '
            f'agent assumes {effective_min_slice_us} us as the shortest '
            'effective slice.'
        )
    details = (
        f'HZ={hz}: slices below {effective_min_slice_us} us have no effect.'
    )
    return (
        success(details)
        if hz >= 250
        else warning(
            details + ' A kernel with HZ=250 or more supports shorter ones.'
        )
    )


def agent(state: str, sentences: Sequence[str]) -> Result:
    """Check the health of the agent that runs on this host.

    :param state: the agent's own judgement of all of its parts.
    :param sentences: one for each part that is not healthy.
    """
    if not sentences:
        return success('all parts of the agent are healthy.')
    details = '; '.join(sentences)
    return failure(details) if state == 'failed' else warning(details)


def agent_away(
    path: str, reason: str | None, has_hypervisor: bool = False
) -> Result:
    """Return the result if no agent has answered.

    :param path: path of the status socket.
    :param reason: error text; None if there is no such socket.
    :param has_hypervisor: whether an agent is to run on this host.
    """
    if reason is None and has_hypervisor:
        return warning(
            f'not checked: no agent has a socket at {path}. Is '
            'nova-vhpc-agent stopped, or its [vhpc_agent]run_path another one?'
        )
    if reason is None:
        return success(f'no agent runs here ({path} does not exist).')
    return warning(
        f'the agent does not answer at {path}: {reason}. Is nova-vhpc-agent '
        'running, and may you open its socket?'
    )


def unchecked(what: str, reason: str) -> Result:
    """Return the result of a check that could not be made.

    :param what: what was to be checked, in the plural.
    :param reason: why it could not, and what to do.
    """
    return warning(f'{what} are not checked: {reason.rstrip(".")}.')


def networks(problems: Sequence[str]) -> Result:
    """Check that packets on each network take the uplinks they should.

    Claims that steer no packets are told by the health of the agent.

    :param problems: one sentence for each network whose packets go astray.
    """
    return warning('; '.join(problems)) if problems else success()


def flavors(problems: Mapping[str, Sequence[str]]) -> Result:
    """Check the flavors' extra specs.

    :param problems: what is wrong with each flavor that is wrong, by name.
    """
    if not problems:
        return success()
    named = '; '.join(
        f'flavor {name}: {found[0]}'
        for name, found in list(problems.items())[:3]
    )
    return warning(
        f'{len(problems)} flavors have extra specs that Nova would refuse '
        'today (clients with a microversion below 2.86 can write them): '
        f'{named}. nova-vhpc-flavor check --all names all.'
    )


def traps(versions: Mapping[str, str]) -> Result:
    """Check for packages that are known to break nova.

    :param versions: versions of installed packages, by name.
    """
    sqlalchemy = versions.get('SQLAlchemy', '')
    faults = []
    if re.match(r'2\.[1-9]|[3-9]', sqlalchemy):
        faults.append(
            f'SQLAlchemy {sqlalchemy}: nova needs SQLAlchemy<2.1, boots '
            'may hang in BUILD'
        )
    if 'placement' in versions:
        faults.append(
            "the package 'placement' of PyPI is not OpenStack's: uninstall "
            'it, then install openstack-placement again, which has files of '
            'the same names'
        )
    return warning('; '.join(faults) + '.') if faults else success()
