# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Status documents of several servers, for tests."""

from typing import Any

from nova_vhpc.tests.unit.agent.daemon import status_document

WEATHER = '3f9a6c21-0000-4000-8000-000000000001'
OCEAN = '0123456789abcdef0123456789abcdef/ocean'

AGENT = {
    'host': 'compute-1',
    'cpus': '0-31',
    'tick_us': 1500.0,
    'period_us': 100_000,
    'ticks': 9_000,
    'overruns': 3,
    'dry_run': False,
    'paused': False,
    'libvirt_up': True,
    'refused': {},
    'remarks': [],
}


def vm(name: str, cluster: str | None = WEATHER, **changes: Any) -> dict:
    """Return what a status document says of a server of 16 vCPUs."""
    (found,) = status_document.document()['vms']
    return {
        **found,
        'uuid': f'uuid-of-{name}',
        'name': f'instance-{name}',
        'server_name': name,
        'cluster': cluster,
        'vcpus': 16,
        'vcpu_pins': ['0-15'] * 16,
        'received': 0.99,
        'reason': 'gang window',
        **changes,
    }


def document(*vms: dict, host: str = 'compute-1', **agent: Any) -> dict:
    """Return the status document of a host."""
    made = status_document.document()
    made['agent'] |= {**AGENT, 'host': host, **agent}
    made['vms'] = list(vms) or [vm('wn-1')]
    made['health'] = {'healthy': True, 'parts': {}}
    return made


def many() -> dict:
    """Return the status document of a host with 60 servers of 16 vCPUs."""
    return document(
        *(
            vm(f'wn-{number}', f'{number % 6:08x}-0000-4000-8000-000000000000')
            for number in range(60)
        ),
        cpus='0-127',
    )
