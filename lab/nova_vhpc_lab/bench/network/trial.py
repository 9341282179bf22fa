# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""One cluster in one network configuration, and programs that run in it."""

import dataclasses
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nova_vhpc_lab.bench.network import (
    fabric,
    figures,
    libraries,
    native,
    vendordata,
)
from nova_vhpc_lab.bench.network import layout as layouts
from nova_vhpc_lab.testbed import errors, namespaces

Value = Mapping[str, Any]
"""What ``exchange.c`` prints of one measurement."""

_LAUNCHER = """\
#!/bin/sh
# Takes the place of ssh: runs a command in the namespace of the guest that has
# an address. As a guest, it has a host name of its own and shares no memory.
while :; do
    case $1 in
    -*) shift ;;
    *) break ;;
    esac
done
case $1 in
{cases}
*) echo "$0: there is no guest $1" >&2; exit 255 ;;
esac
shift
exec ip netns exec "$guest" unshare --uts --ipc \\
    sh -c "hostname $guest; $*"
"""


def launcher(layout: layouts.Layout) -> str:
    """Return a shell script that takes the place of ssh."""
    cases = '\n'.join(
        f'{"|".join(nic.address for nic in guest.nics)}) guest={guest.name} ;;'
        for guest in layout.guests
    )
    return _LAUNCHER.replace('{cases}', cases)


@dataclasses.dataclass(frozen=True, slots=True)
class CpuUse:
    """CPUs of this machine that are used.

    :ivar guests: CPUs of all guests.
    :ivar packets: CPUs that do what a host does with its guests' packets.
    """

    guests: tuple[int, ...]
    packets: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """How to measure.

    :ivar link_mbps: speed of each uplink, in Mbit/s.
    :ivar seconds: length of one measurement.
    :ivar pairs: most pairs that are measured at a time; 0 for none.
    :ivar cpus: CPUs to use; None for those that the kernel chooses.
    :ivar timeout_s: seconds after which a program is taken to hang.
    """

    link_mbps: float
    seconds: float
    pairs: int = figures.MOST_PAIRS
    cpus: CpuUse | None = None
    timeout_s: float = 300.0


class Trial:
    """A cluster whose guests can exchange messages. A context manager.

    :param cluster: hosts and guests.
    :param configuration: one of :data:`layout.ROWS`.
    :param terms: how to measure.
    """

    def __init__(
        self, cluster: layouts.Cluster, configuration: str, terms: Terms
    ) -> None:
        self._cluster = cluster
        self._layout = layouts.plan(cluster, configuration)
        self._is_native = configuration == layouts.NATIVE
        self._answers = (
            native.answers(self._layout)
            if self._is_native
            else vendordata.answers(self._layout, configuration)
        )
        self._terms = terms
        self._world = namespaces.Namespaces()

    def __enter__(self) -> 'Trial':
        """Make namespaces and links.

        :raises LabError: the kernel or the missing privilege prevents it.
        """
        try:
            self._world.__enter__()
            fabric.make(
                self._world,
                self._layout,
                self._terms.link_mbps,
            )
            for guest, answer in zip(
                self._layout.guests, self._answers, strict=True
            ):
                script = answer['routes_script']
                self._world.run(('sh', '-s'), guest.name, text=script)
            if self._terms.cpus is not None:
                fabric.steer(
                    self._world, self._layout, self._terms.cpus.packets
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""
        self._world.close()

    def run(self, installed: libraries.Installed) -> list[Value]:
        """Run the program on all guests and return what it measured.

        :raises LabError: the program fails or hangs.
        """
        answer = self._answers[0]
        is_openmpi = installed.library.is_openmpi
        library = 'openmpi' if is_openmpi else 'mpich'
        first = self._layout.guests[0]
        command = installed.command(
            launcher=self._file('launcher', launcher(self._layout)),
            hostfile=self._file(
                f'hostfile-{library}', answer['hostfile'][library]
            ),
            flags=answer['mpi']['openmpi5' if is_openmpi else library],
            members=self._cluster.members,
            program=(
                str(self._file('vhpc-run', answer['mpi']['wrapper'])),
                str(installed.program),
                str(self._cluster.guests),
                str(self._terms.seconds),
                str(self._terms.pairs),
            ),
        )
        if self._terms.cpus is not None:
            cpus = ','.join(map(str, self._terms.cpus.guests))
            command = ('taskset', '-c', cpus, *command)
        output = self._world.run(
            command,
            first.name,
            environment={
                **installed.environment(self._is_native),
                **answer['mpi']['environment'],
            },
            timeout_s=self._terms.timeout_s,
        )
        values = [
            json.loads(line)
            for line in output.splitlines()
            if line.startswith('{')
        ]
        if not values:
            raise errors.LabError(
                f'{shlex.join(command)} measured nothing: {output[-500:]}'
            )
        return values

    def _file(self, name: str, text: str) -> Path:
        """Write an executable file; return its path."""
        path = Path('/run', name)
        self._world.write(str(path), text)
        return path
