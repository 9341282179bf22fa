# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The script that runs a program of MPI on the cluster's interfaces. Pure.

UCX and libfabric choose interfaces by themselves, a management network
included, and take names of interfaces, which differ from image to image. The
script finds the names by the members' addresses, on the member that it runs
on.
"""

from nova_vhpc.vendordata import model, mpi

_SCRIPT = """\
#!/bin/sh
# Runs a program on the interfaces for MPI: mpiexec ... ./vhpc-run ./program
first='FIRST'
second='SECOND'
interfaces= devices= rdma= rails=0
for addresses in "$first" "$second"; do
    before=$interfaces
    for pair in $(ip -o address show | awk '{print $2 "=" $4}'); do
        nic=${pair%%=*}
        address=${pair#*=}
        case " $addresses " in *" ${address%/*} "*) ;; *) continue ;; esac
        case ",$interfaces," in *",$nic,"*) continue ;; esac
        interfaces=${interfaces:+$interfaces,}$nic
        devices=${devices:+$devices,}$nic
        for hca in "/sys/class/net/$nic/device/infiniband"/*; do
            if [ -e "$hca" ]; then
                devices=$devices,${hca##*/}:1
                rdma=yes
            fi
        done
    done
    [ "$interfaces" = "$before" ] || rails=$((rails + 1))
done
if [ -n "$interfaces" ]; then
    # Open MPI, UCX (MPICH), libfabric (MPICH, Intel MPI)
    export OMPI_MCA_btl_tcp_if_include="$interfaces"
    export UCX_NET_DEVICES="$devices"
    export FI_TCP_IFACE="${interfaces%%,*}"
    if [ -z "$rdma" ]; then
        export FI_PROVIDER="${FI_PROVIDER:-tcp}"
    fi
fi
if [ "$rails" = 2 ] && [ -z "$rdma" ]; then
    # Long messages go over both interfaces.
    limit=${OMPI_MCA_btl_tcp_eager_limit:-LIMIT}
    export OMPI_MCA_btl_tcp_eager_limit="$limit"
    part=${OMPI_MCA_btl_tcp_rndv_eager_limit:-PART}
    export OMPI_MCA_btl_tcp_rndv_eager_limit="$part"
    export UCX_MAX_EAGER_RAILS="${UCX_MAX_EAGER_RAILS:-2}"
    export UCX_MAX_RNDV_RAILS="${UCX_MAX_RNDV_RAILS:-2}"
    export UCX_RNDV_THRESH="${UCX_RNDV_THRESH:-LIMIT}"
fi
exec "$@"
"""


def wrapper(cluster: model.Cluster) -> str:
    """Return the script. It is the same for all members.

    Addresses are matched exactly: the two NICs of a member may be on networks
    with one address range. libfabric's TCP provider takes a single interface
    and gets the first; UCX and Open MPI get both of ``multiple-shared``.

    MPICH 4.2 takes libfabric's sockets provider by default, which heeds other
    variables. Where an interface belongs to an RDMA device, for which TCP
    would be the slow way, the provider is left to the library.
    """
    first, second = (
        ' '.join(
            dict.fromkeys(
                str(address)
                for address in model.mpi_addresses(cluster.members, position)
            )
        )
        for position in range(2)
    )
    return (
        _SCRIPT.replace('FIRST', first)
        .replace('SECOND', second)
        .replace('LIMIT', str(mpi.EAGER_LIMIT))
        .replace('PART', str(mpi.FIRST_PART))
    )
