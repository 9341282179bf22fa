# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""ATC shortens the slices of members whose flavor has a quota."""

from nova_vhpc_lab.stack import guests
from nova_vhpc_lab.stack.demo import state


def run(demo: state.Demo) -> None:
    """Wait for shorter slices; check that the part of a CPU is as it was."""
    with demo.show.waiting('slices shorter than the quota of the flavor'):
        shortened = demo.stage.wait(
            'shorter slices of all members',
            lambda: _shortened(demo),
        )
    rows = []
    for uuid, tune in shortened.items():
        flavor, now = _part(demo.before[uuid]), _part(tune)
        rows.append(
            (
                demo.names[uuid],
                demo.before[uuid]['vcpu_quota'],
                demo.before[uuid]['vcpu_period'],
                tune['vcpu_quota'],
                tune['vcpu_period'],
                f'{100 * flavor:.1f}',
                f'{100 * now:.1f}',
            )
        )
        if abs(now - flavor) > 0.001 * flavor:
            raise state.DemoError(f'{demo.names[uuid]}: {flavor} became {now}')
    demo.show.table(
        'Slices of ATC on the quota of the flavor, as virsh shows them',
        (
            'server',
            "flavor's quota us",
            'period us',
            "slice: ATC's quota us",
            'period us',
            'CPU % by flavor',
            'CPU % now',
        ),
        rows,
    )


def _shortened(demo: state.Demo) -> dict[str, guests.Cputune] | None:
    """Return the settings of the members if all have shorter slices."""
    now = {uuid: demo.cputune(uuid) for uuid in demo.members}
    quotas = [
        (int(tune['vcpu_quota']), int(demo.before[uuid]['vcpu_quota']))
        for uuid, tune in now.items()
    ]
    return now if all(0 < quota < old for quota, old in quotas) else None


def _part(tune: guests.Cputune) -> float:
    """Return the part of a CPU that each vCPU may use."""
    return int(tune['vcpu_quota']) / int(tune['vcpu_period'])
