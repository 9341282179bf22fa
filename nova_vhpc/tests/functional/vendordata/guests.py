# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Network namespaces that stand for guests on two hosts.

Each guest has four NICs. Two of them (``management`` and ``shared``, and one
more ``shared2``) are on bridges of its host, which have an uplink to a switch;
``own`` is on the switch itself, as with an uplink of its own. Names of guests
cannot be resolved, and each guest has its own host name, process IDs and
shared memory, so that MPI libraries take them for machines.

They run what this machine has installed. If the environment variable
``VHPC_MPI_ROOT`` names the directory of another system, they run what that has
(``tools/mpi.sh``).
"""

import json
import os
import pathlib
import stat

import fixtures

from nova_vhpc_lab.testbed import namespaces
from nova_vhpc_lab.testbed.patience import PATIENCE_S

NICS = ('management', 'shared', 'own', 'shared2')
"""Names of the networks, in the order of the guests' NICs."""

HOSTS = {1: 'h1', 2: 'h1', 3: 'h2', 4: 'h2'}
"""Host of each guest, by the guest's number."""

_ENTER = """\
#!/bin/sh
# enter [OPTION...] ADDRESS COMMAND: what ssh would do
while [ "${1#-}" != "$1" ]; do shift; done
number=${1#"${1%?}"}
shift
case $number in
CASES
esac
apart='unshare -u -i -p -f --kill-child --mount-proc'
exec ip netns exec guest-$number $apart taskset -c "$cpu" sh -c '
    hostname "$0"
    mount --bind DIRECTORY/hosts /etc/hosts
    mount --bind DIRECTORY/resolv.conf /etc/resolv.conf
    # Open MPI 5 names its directories by process IDs, which guests share.
    mount -t tmpfs tmpfs /mnt
    export TMPDIR=/mnt
    exec sh -c "$1"
' "guest-$number" "$*"
"""

_OTHER_SYSTEM = """\
mount --bind "$0" "$0"
mount -t tmpfs tmpfs "$0/tmp"
touch "$0/etc/hosts" "$0/etc/resolv.conf"
for place in /dev /proc /run /sys "$1"; do
    mkdir -p "$0$place"
    mount --rbind "$place" "$0$place"
done
shift
exec chroot "$0" "$@"
"""


class Guests(fixtures.Fixture):
    """The guests of :data:`HOSTS`; ``enter`` runs commands in them.

    :param versions: IP versions of which guests have addresses.
    """

    def __init__(self, versions: tuple[int, ...] = (4,)) -> None:
        super().__init__()
        self._versions = versions

    def _setUp(self) -> None:
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self._world = namespaces.Namespaces()
        self.addCleanup(self._world.close)
        self._world.__enter__()
        for network in range(len(NICS)):
            self._add_network(network)
        for number in HOSTS:
            self._add_guest(number)
        (self.directory / 'hosts').write_text('127.0.0.1 localhost\n')
        # Hydra waits for DNS; there is none, which is said at once.
        (self.directory / 'resolv.conf').write_text('nameserver 127.0.0.1\n')
        # Ranks poll: each guest has one CPU, as machines would.
        cpus = sorted(os.sched_getaffinity(0))
        cases = '\n'.join(
            f'    {number}) cpu={cpus[number % len(cpus)]} ;;'
            for number in HOSTS
        )
        self.enter = self._script(
            'enter',
            _ENTER.replace('CASES', cases).replace(
                'DIRECTORY', str(self.directory)
            ),
        )

    def address(self, number: int, network: str, version: int = 4) -> str:
        """Return the address of a guest on a network."""
        index = NICS.index(network)
        if version == 6:
            return f'fd00:{index}::{number}'
        return f'10.{index}.0.{number}'

    def add_names(self, text: str) -> None:
        """Add lines to ``/etc/hosts`` of all guests."""
        with (self.directory / 'hosts').open('a') as file:
            file.write(text)

    def run(
        self, number: int, command: str, timeout_s: float = PATIENCE_S
    ) -> str:
        """Run a shell command in a guest; return what it prints.

        :raises LabError: it failed, or took too long.
        """
        system: tuple[str, ...] = ()
        if root := os.environ.get('VHPC_MPI_ROOT'):
            system = (
                *('unshare', '--mount', '--', 'sh', '-ec', _OTHER_SYSTEM),
                *(root, str(self.directory)),
            )
        return self._world.run(
            (*system, str(self.enter), self.address(number, 'own'), command),
            timeout_s=timeout_s,
        )

    def install(self, name: str, text: str) -> pathlib.Path:
        """Write an executable that all guests see."""
        return self._script(name, text)

    def sent_bytes(self) -> dict[str, int]:
        """Return what all guests have sent, in bytes, by network."""
        links = json.loads(
            self._world.run(('ip', '-json', '-stats', 'link', 'show'))
        )
        received = {
            link['ifname']: link['stats64']['rx']['bytes'] for link in links
        }
        return {
            name: sum(received[f'g{number}-{network}'] for number in HOSTS)
            for network, name in enumerate(NICS)
        }

    def _script(self, name: str, text: str) -> pathlib.Path:
        path = self.directory / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def _add_network(self, network: int) -> None:
        switch = f'switch{network}'
        commands = _bridge(switch)
        for host in sorted(set(HOSTS.values())):
            bridge = f'{host}-{network}'
            commands += [
                *_bridge(bridge),
                f'link add {bridge}u type veth peer name {bridge}p',
                f'link set {bridge}u master {bridge} up',
                f'link set {bridge}p master {switch} up',
            ]
        self._world.batch('ip', commands)

    def _add_guest(self, number: int) -> None:
        name = f'guest-{number}'
        self._world.add(name)
        outside: list[str] = []
        inside: list[str] = []
        for network, nic in enumerate(NICS):
            port = f'g{number}-{network}'
            bridge = (
                f'switch{network}'
                if nic == 'own'
                else f'{HOSTS[number]}-{network}'
            )
            outside += [
                f'link add {port} type veth peer name eth{network} '
                f'netns {name}',
                f'link set {port} master {bridge} up',
            ]
            inside += [
                f'link set eth{network} up',
                *(
                    f'addr add {self.address(number, nic, version)}'
                    f'/{24 if version == 4 else "64 nodad"} dev eth{network}'
                    for version in self._versions
                ),
            ]
        # As in most guests, the management network has the default route.
        if 4 in self._versions:
            inside.append(
                f'route add default via {self.address(254, NICS[0])}'
            )
        self._world.batch('ip', outside)
        self._world.batch('ip', inside, name)


def _bridge(name: str) -> list[str]:
    return [f'link add {name} type bridge', f'link set {name} up']
