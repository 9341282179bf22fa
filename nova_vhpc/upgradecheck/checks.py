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

"""The checks of ``nova-vhpc-status upgrade check``, without any I/O.

Each takes what was read and says what is wrong and what to do. A part that
is not on this host (no nova beside us, no libvirt) is no failure: the same
command runs on controllers and on compute nodes.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from oslo_upgradecheck import upgradecheck

from nova_vhpc.topology import model

NOVA_MAJOR = 34
"""2026.2, the release that this one is made for."""

LIBVIRT_MINIMUM = (9, 0, 0)
FILTER = 'VirtualClusterFilter'
FILTER_CLASS = f'nova_vhpc.scheduler.filters.{FILTER}'
WEIGHER_CLASS = 'nova_vhpc.scheduler.weights.VirtualClusterWeigher'

# These look at a host alone and cost less; ours plans with what they leave.
# The last two replace a host's candidates, which ours hands out one by one.
BEFORE_OURS = (
    'ComputeFilter',
    'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter',
    'NUMATopologyFilter',
    'PciPassthroughFilter',
)

Result = upgradecheck.Result
Code = upgradecheck.Code


def success(details: str | None = None) -> Result:
    """The check found nothing."""
    return Result(Code.SUCCESS, details)


def warning(details: str) -> Result:
    """It works, but not as well as it could."""
    return Result(Code.WARNING, details)


def failure(details: str) -> Result:
    """It does not work; the details say what to do."""
    return Result(Code.FAILURE, details)


def options(unread: Sequence[str], wrong: str | None = None) -> Result:
    """Whether everything in the files of the configuration is of use.

    :param unread: a sentence for each thing that nobody reads.
    :param wrong: the first value that our services refuse.
    """
    if wrong is not None:
        return failure(
            '; '.join([f'{wrong}; what reads that does not start', *unread])
        )
    return warning('; '.join(unread)) if unread else success()


def nova_version(found: str | None) -> Result:
    """Whether the nova beside us is the one that we are made for.

    :param found: its version, or None where it is not installed.
    """
    if found is None:
        return success('nova is not installed here: agent only.')
    match = re.match('[0-9]+', found)
    major = int(match.group()) if match else 0
    if major < NOVA_MAJOR:
        return failure(
            f'nova {found} is older than {NOVA_MAJOR}.0.0 (2026.2). Upgrade '
            'nova first.'
        )
    if major > NOVA_MAJOR:
        return warning(
            f'nova {found} is newer than the {NOVA_MAJOR}.x that this '
            'release was tested with. Look for a newer nova-vhpc.'
        )
    return success(f'nova {found}')


def scheduler(
    available: Sequence[str] | None,
    enabled: Sequence[str],
    weighers: Sequence[str],
) -> Result:
    """Filter and weigher switched on, and the filter after cheaper ones.

    :param available: ``available_filters``, or None without nova here.
    :param enabled: ``enabled_filters``, in order.
    :param weighers: ``weight_classes``.
    """
    if available is None:
        return success('nova is not installed here: agent only.')
    missing = []
    if FILTER_CLASS not in available:
        missing.append(f'available_filters = {FILTER_CLASS}')
    if FILTER not in enabled:
        missing.append(f'enabled_filters = ...,{FILTER}')
    if WEIGHER_CLASS not in weighers:
        missing.append(f'weight_classes = ...,{WEIGHER_CLASS}')
    if missing:
        return failure(
            "nova.conf's [filter_scheduler] lacks " + '; '.join(missing) + '.'
        )
    if 'nova.scheduler.filters.all_filters' not in available:
        return failure(
            'available_filters no longer has '
            "nova.scheduler.filters.all_filters, so nova's own filters are "
            'gone. Add it as a line of its own.'
        )
    late = [
        name
        for name in BEFORE_OURS
        if name in enabled and enabled.index(name) > enabled.index(FILTER)
    ]
    if late:
        return warning(
            f'{FILTER} stands before {", ".join(late)} in enabled_filters; '
            'as the last one it costs least, and hands out what they leave.'
        )
    return success()


def placement(
    hosts: int, stamps: Mapping[str, int], now_s: float, max_age_s: int
) -> Result:
    """The agents' providers are there and fresh.

    :param hosts: providers that carry ``CUSTOM_VHPC_HOST``.
    :param stamps: by host, what its marker provider says (minutes).
    :param max_age_s: ``[vhpc_scheduler]topology_max_age``; 0 for never.
    """
    if hosts == 0:
        return warning(
            'Placement answers, but no host carries '
            f'{model.TRAIT_HOST}: no agent has published its uplinks yet.'
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
            f'{max_age_s} s ({named or "none named"}) and {max(silent, 0)} '
            'no stamp at all. Look at nova-vhpc-agent there.'
        )
    return success(f'{hosts} hosts, all fresh.')


def placement_away(reason: str) -> Result:
    """Placement did not answer."""
    return failure(
        f'Placement cannot be asked: {reason}. Set [placement] in '
        'nova-vhpc.conf as in nova.conf.'
    )


def libvirt(version: int | None, reason: str = '') -> Result:
    """libvirt answers and is new enough.

    :param version: as ``getLibVersion`` gives it; None when away.
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


def libvirt_hook(program: str | None, runs: bool) -> Result:
    """Whether libvirt can ask our hook, where it was given to it.

    :param program: that the installed script calls; None without a script.
    :param runs: whether libvirt may run both.
    """
    if program is None:
        return success(
            'not installed; members that migrate live need it '
            '(installation guide, "libvirt hook").'
        )
    if not runs:
        return warning(
            f'installed, but it does nothing: it is not executable, or there '
            f"is no '{program}'. Install it again as the installation guide "
            'says ("libvirt hook").'
        )
    return success()


def cgroup(controllers: Collection[str]) -> Result:
    """cpu (period, quota, shares) and cpuset (pins) can be used.

    :param controllers: usable ones, of cgroup v1 or v2 alike.
    """
    missing = sorted({'cpu', 'cpuset'} - set(controllers))
    if missing:
        return failure(
            f'the cgroup controllers {", ".join(missing)} cannot be used: '
            'libvirt has nothing to set cputune with. On cgroup v2 they '
            'must stand in cgroup.controllers of the root.'
        )
    return success()


def tick(hz: int | None, effective_min_slice_us: int) -> Result:
    """How short a time slice this kernel can bring about.

    :param hz: the kernel's CONFIG_HZ, or None where it cannot be read.
    """
    if hz is None:
        return warning(
            'the tick rate (CONFIG_HZ) of this kernel cannot be read; the '
            f'agent reckons with {effective_min_slice_us} us as the least '
            'effective slice.'
        )
    details = (
        f'HZ={hz}: slices below {effective_min_slice_us} us have no effect.'
    )
    return (
        success(details)
        if hz >= 250
        else warning(details + ' A kernel with HZ=250 or more follows better.')
    )


def traps(versions: Mapping[str, str]) -> Result:
    """What is known to break with nova 34.

    :param versions: of installed packages, by name.
    """
    sqlalchemy = versions.get('SQLAlchemy', '')
    found = []
    if re.match(r'2\.[1-9]|[3-9]', sqlalchemy):
        found.append(
            f'SQLAlchemy {sqlalchemy}: nova 34 needs SQLAlchemy<2.1, boots '
            'may hang in BUILD'
        )
    if 'placement' in versions:
        found.append(
            "the package 'placement' of PyPI is not OpenStack's; install "
            'openstack-placement and remove it'
        )
    return warning('; '.join(found) + '.') if found else success()
