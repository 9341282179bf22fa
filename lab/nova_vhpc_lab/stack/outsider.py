# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A machine outside of any virtual cluster, which sends packets to members.

``python -m nova_vhpc_lab.stack.outsider ADDRESS NUMBER`` sends NUMBER UDP
packets a second to an address, until it is killed.
"""

import contextlib
import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from nova_vhpc_lab.ovn import lab, programs
from nova_vhpc_lab.stack import client

_TAP = 'outsider'

_BEGINS = 'sending'
"""What the program prints before the first packet."""

_PAUSE_S = 0.005
_LATE_S = 0.02
"""How much of the time that a busy machine took from the program it makes up
for, in seconds. All of it would be a burst, by far the highest sample of the
agent, and a threshold that the steady traffic does not reach."""


class Outsider:
    """A port of a network on a host, and a namespace behind it.

    :param switch: Open vSwitch of the host.
    """

    def __init__(self, switch: lab.Host) -> None:
        self._switch = switch
        self._place: programs.Place | None = None

    def start(
        self, owner: client.Client, nova: client.Client, network: str
    ) -> None:
        """Make the port as Nova does, and wait until it can be used.

        :param owner: REST client of the port's project.
        :param nova: REST client that may bind ports to hosts.
        :param network: ID of the network.
        """
        body = {'network_id': network, 'name': _TAP}
        path = '/v2.0/ports'
        port = owner.request('network', 'POST', path, {'port': body})['port']
        path = f'{path}/{port["id"]}'
        body = {'binding:host_id': self._switch.hostname}
        nova.request('network', 'PUT', path, {'port': body})
        mac = port['mac_address']
        address = port['fixed_ips'][0]['ip_address']
        self._place = self._switch.make_guest(_TAP, mac, address)
        # Nova has the server's ID there, and Neutron the port's.
        self._switch.plug(_TAP, port['id'], port['id'], mac)
        lab.wait_for(
            lambda: (
                owner.request('network', 'GET', path)['port']['status']
                == 'ACTIVE'
            ),
            'the port',
        )

    @contextlib.contextmanager
    def traffic(
        self, address: str, packets_per_s: int = 2000
    ) -> Iterator[None]:
        """Send packets to an address during a ``with`` block.

        :param packets_per_s: number of packets per second.
        :raises CalledProcessError: if the program ends before it sends.
        """
        assert self._place is not None
        command = (sys.executable, '-m', __name__, address, str(packets_per_s))
        with subprocess.Popen(
            self._place.inside(*command), stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                # On a busy machine it takes seconds until it begins.
                if process.stdout.readline().strip() != _BEGINS:
                    raise subprocess.CalledProcessError(
                        process.wait(), command
                    )
                yield
            finally:
                process.kill()


def main() -> None:
    """Run the program."""
    # The port is "discard".
    target, packets_per_s = (sys.argv[1], 9), int(sys.argv[2])
    most_at_once = math.ceil(packets_per_s * _LATE_S)
    print(_BEGINS, flush=True)
    started, sent = time.monotonic(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        while True:
            due = int((time.monotonic() - started) * packets_per_s)
            for _ in range(min(due - sent, most_at_once)):
                # The guest says that nobody listens.
                with contextlib.suppress(OSError):
                    sender.sendto(bytes(64), target)
            sent = due
            time.sleep(_PAUSE_S)


if __name__ == '__main__':
    main()
