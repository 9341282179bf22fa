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

"""Network namespaces that stand for guests on two hosts.

Each guest has four NICs. Two of them (``management`` and ``shared``, and one
more ``shared2``) are on bridges of its host, which have an uplink to a switch;
``own`` is on the switch itself, as with an uplink of its own. Names of guests
cannot be resolved, and each guest has its own host name, process IDs and
shared memory, so that MPI libraries take them for machines.
"""

import json
import os
import pathlib
import stat
import subprocess
import sys
import uuid

import fixtures

NICS = ('management', 'shared', 'own', 'shared2')
"""Names of the networks, in the order of the guests' NICs."""

HOSTS = {1: 'h1', 2: 'h1', 3: 'h2', 4: 'h2'}
"""Host of each guest, by the guest's number."""

_ENTER = """\
#!/bin/sh
# enter [OPTION...] ADDRESS COMMAND: what ssh would do
while [ "${1#-}" != "$1" ]; do shift; done
number=${1##*.}
shift
case $number in
CASES
esac
apart='unshare -u -i -p -f --kill-child --mount-proc'
exec ip netns exec PREFIX$number $apart taskset -c "$cpu" sh -c '
    hostname "$0"
    mount --bind DIRECTORY/hosts /etc/hosts
    mount --bind DIRECTORY/resolv.conf /etc/resolv.conf
    exec sh -c "$1"
' "guest-$number" "$*"
"""


class Guests(fixtures.Fixture):
    """The guests of :data:`HOSTS`; ``enter`` runs commands in them."""

    def _setUp(self) -> None:
        self._prefix = f'nv{uuid.uuid4().hex[:5]}-'
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self._fabric = self._namespace('fabric')
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
            _ENTER.replace('CASES', cases)
            .replace('PREFIX', self._prefix)
            .replace('DIRECTORY', str(self.directory)),
        )

    def address(self, number: int, network: str) -> str:
        """Return the address of a guest on a network."""
        return f'10.{NICS.index(network)}.0.{number}'

    def run(self, number: int, command: str, timeout_s: float = 60.0) -> str:
        """Run a shell command in a guest; return what it prints.

        :raises AssertionError: it failed, or took too long.
        """
        try:
            result = subprocess.run(
                [self.enter, self.address(number, 'own'), command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                text=True,
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f'{command}: {error.output}') from error
        if result.returncode:
            raise AssertionError(f'{command}: {result.stdout}')
        return result.stdout

    def install(self, name: str, text: str) -> pathlib.Path:
        """Write an executable that all guests see."""
        return self._script(name, text)

    def sent_bytes(self) -> dict[str, int]:
        """Return what all guests have sent, in bytes, by network."""
        links = json.loads(
            subprocess.check_output(
                ['ip', '-n', self._fabric, '-json', '-stats', 'link', 'show']
            )
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

    def _namespace(self, name: str) -> str:
        namespace = f'{self._prefix}{name}'
        _ip('netns', 'add', namespace)
        self.addCleanup(_ip, 'netns', 'del', namespace)
        return namespace

    def _add_network(self, network: int) -> None:
        switch = f'switch{network}'
        self._add_bridge(switch)
        for host in sorted(set(HOSTS.values())):
            bridge = f'{host}-{network}'
            self._add_bridge(bridge)
            self._fabric_ip(
                'link add',
                f'{bridge}u type veth peer name {bridge}p',
            )
            self._fabric_ip('link set', f'{bridge}u master {bridge} up')
            self._fabric_ip('link set', f'{bridge}p master {switch} up')

    def _add_bridge(self, name: str) -> None:
        self._fabric_ip('link add', f'{name} type bridge')
        self._fabric_ip('link set', f'{name} up')

    def _add_guest(self, number: int) -> None:
        namespace = self._namespace(str(number))
        _ip('-n', namespace, 'link', 'set', 'lo', 'up')
        for network, name in enumerate(NICS):
            port = f'g{number}-{network}'
            bridge = (
                f'switch{network}'
                if name == 'own'
                else f'{HOSTS[number]}-{network}'
            )
            self._fabric_ip(
                'link add',
                f'{port} type veth peer name eth{network} netns {namespace}',
            )
            self._fabric_ip('link set', f'{port} master {bridge} up')
            address = f'{self.address(number, name)}/24'
            for words in (
                f'addr add {address} dev eth{network}',
                f'link set eth{network} up',
            ):
                _ip('-n', namespace, *words.split())
        # As in most guests, the management network has the default route.
        gateway = self.address(254, 'management')
        _ip('-n', namespace, 'route', 'add', 'default', 'via', gateway)

    def _fabric_ip(self, verb: str, rest: str) -> None:
        _ip('-n', self._fabric, *verb.split(), *rest.split())


def _ip(*arguments: str) -> None:
    subprocess.run(['ip', *arguments], check=True, stdout=sys.stderr)
