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
