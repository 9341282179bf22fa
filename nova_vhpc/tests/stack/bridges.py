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


"""Real Linux bridges, each with a veth end as its uplink."""

import contextlib
import pathlib
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator


class BridgeError(Exception):
    """``ip`` refused; says what it was asked, and its words."""


def ip(*words: str, check: bool = True) -> str:
    done = subprocess.run(('ip', *words), capture_output=True, text=True)
    if check and done.returncode:
        raise BridgeError(f'ip {" ".join(words)}: {done.stderr.strip()}')
    return done.stdout


class Bridges:
    """``<tag>br0``, ``<tag>br1``...; the far veth end plays the cable.

    :param tag: at most 8 characters, so that all names are valid ones.
    """

    def __init__(self, tag: str, count: int) -> None:
        self.names = [f'{tag}br{n}' for n in range(count)]
        self.uplinks = [f'{tag}up{n}' for n in range(count)]
        self.cables = [f'{tag}wi{n}' for n in range(count)]
        self._made: list[str] = []

    def make(self) -> None:
        """
        :raises BridgeError: not root, or a name is taken.
        """
        for bridge, uplink, cable in zip(
            self.names, self.uplinks, self.cables, strict=True
        ):
            ip('link', 'add', bridge, 'type', 'bridge')
            self._made.append(bridge)
            ip('link', 'add', uplink, 'type', 'veth', 'peer', 'name', cable)
            self._made.append(uplink)
            # Guests' own traffic only: no neighbour discovery on it.
            for name in (bridge, uplink, cable):
                subprocess.run(
                    ('sysctl', '-qw', f'net.ipv6.conf.{name}.disable_ipv6=1'),
                    check=False,
                    stderr=subprocess.DEVNULL,
                )
            ip('link', 'set', uplink, 'master', bridge)
            for name in (bridge, uplink, cable):
                ip('link', 'set', name, 'up')

    def remove(self, taps: Iterable[str] = ()) -> None:
        """Idempotent; a veth takes its other end with it.

        Nova makes a server's tap and unplugs it when the server is deleted;
        of servers that were never deleted we must remove it.

        :param taps: of such servers, attached to a bridge or not.
        """
        for bridge in self.names:
            ports = pathlib.Path('/sys/class/net', bridge).glob('brif/tap*')
            taps = {*taps, *(port.name for port in ports)}
        for tap in taps:
            ip('link', 'delete', tap, check=False)
        for name in reversed(self._made):
            ip('link', 'delete', name, check=False)
        self._made.clear()


@contextlib.contextmanager
def traffic(cable: str, frames_per_s: int = 4000) -> Iterator[None]:
    """Broadcast frames that come in by an uplink, for a ``with`` block."""
    over = threading.Event()
    frame = b'\xff' * 6 + b'\x02vhpc!' + b'\x88\xb5' + b'\0' * 86

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((cable, 0))
            burst = max(1, frames_per_s // 100)
            while not over.wait(0.01):
                for _ in range(burst):
                    with contextlib.suppress(BlockingIOError):
                        raw.send(frame, socket.MSG_DONTWAIT)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
