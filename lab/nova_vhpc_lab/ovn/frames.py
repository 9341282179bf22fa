# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Counts unicast frames at the ports of a switch, by their direction.

The kernel's counters of an interface have broadcasts, too, which a switch
sends to all ports.
"""

import json
import subprocess
import sys

import fixtures

from nova_vhpc_lab.ovn import programs

_PROGRAM = """
import collections, json, select, socket, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
counts = collections.Counter()
print('ready', flush=True)
while True:
    readable = select.select([packets, sys.stdin], [], [])[0]
    if packets in readable:
        frame, (port, _, kind, _, _) = packets.recvfrom(64)
        if not frame[0] & 1:
            # What leaves the switch arrives at the host.
            way = 'in' if kind == socket.PACKET_OUTGOING else 'out'
            counts[f'{port} {way}'] += 1
    elif not sys.stdin.readline():
        break
    else:
        print(json.dumps(counts), flush=True)
"""


class UnicastCounter(fixtures.Fixture):
    """Counts, in a process of its own, as long as the fixture is in use.

    :param place: the network namespace of the switch.
    """

    def __init__(self, place: programs.Place) -> None:
        super().__init__()
        self._place = place

    def _setUp(self) -> None:
        self._process = subprocess.Popen(
            [
                *('ip', 'netns', 'exec', self._place.namespace or ''),
                *(sys.executable, '-c', _PROGRAM),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self._process.communicate)
        assert self._answer() == 'ready'

    def read(self) -> dict[str, int]:
        """Return the numbers of frames, by port and ``in`` or ``out``.

        ``in`` is what arrives at the host.
        """
        assert self._process.stdin is not None
        self._process.stdin.write('\n')
        self._process.stdin.flush()
        counts: dict[str, int] = json.loads(self._answer())
        return counts

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
