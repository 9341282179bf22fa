# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What programs need to run on hosts without guests. Pure.

Each rank has a NIC of its host, as with ``exported``; but it is a process of
the host, and shares memory with the other ranks there. The answers have the
keys of a guest's vendordata that the bench uses.
"""

from collections.abc import Iterator
from typing import Any

from nova_vhpc_lab.bench.network import layout as layouts

_WRAPPER = """\
#!/bin/sh
# Runs a rank on the NIC that has the rank's number on its host. MPICH's ranks
# would poll shared memory without a pause, and there are more than CPUs.
export MPIR_CVAR_CH4_PROGRESS_THROTTLE=1
nic=eth${MPI_LOCALRANKID:-$OMPI_COMM_WORLD_LOCAL_RANK}
export FI_TCP_IFACE="$nic" UCX_NET_DEVICES="$nic" UCX_TCP_EP_BIND_SRC_ADDR=y
export OMPI_MCA_btl_tcp_if_include="$nic"
exec "$@"
"""

_ONE_LAN = """\
# All NICs of the host are on one network: each answers for itself only.
echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
echo 2 >/proc/sys/net/ipv4/conf/all/arp_announce
"""


def answers(layout: layouts.Layout) -> tuple[dict[str, Any], ...]:
    """Return what each host is told, in rank order."""
    addresses = [host.nics[0].address for host in layout.guests]
    common = {
        'hostfile': {
            'openmpi': ''.join(
                f'{address} slots={layout.ranks}\n' for address in addresses
            ),
            'mpich': ''.join(
                f'{address}:{layout.ranks}\n' for address in addresses
            ),
        },
        'mpi': {
            'openmpi5': ['--bind-to', 'none'],
            'mpich': ['-bind-to', 'none'],
            'wrapper': _WRAPPER,
            'environment': {},
        },
    }
    return tuple(
        {**common, 'routes_script': _ONE_LAN + ''.join(_routes(host))}
        for host in layout.guests
    )


def _routes(host: layouts.Guest) -> Iterator[str]:
    """Yield commands by which messages leave by the NIC of their rank."""
    for number, nic in enumerate(host.nics):
        table = 100 + number
        yield f'ip route add 10.0.0.0/8 dev {nic.name} table {table}\n'
        yield f'ip rule add from {nic.address} lookup {table}\n'
