# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""CPUs of hosts to pin VMs on."""

from nova_vhpc.control import model


def host(sockets=2, caches=1, cores=4, threads=1):
    """Return the CPUs of a host.

    As on x86, the first threads of all cores have the lowest numbers.
    """
    cpus = []
    number = 0
    for _thread in range(threads):
        core = 0
        for socket in range(sockets):
            for cache in range(caches):
                for _core in range(cores):
                    cpus.append(
                        model.Cpu(
                            number, socket, socket * caches + cache, core
                        )
                    )
                    number += 1
                    core += 1
    return tuple(cpus)
