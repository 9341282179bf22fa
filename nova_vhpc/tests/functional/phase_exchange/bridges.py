# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Linux bridges, each with one end of a veth pair as its uplink."""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator


class BridgeError(Exception):
    """``ip`` failed; the message has its command line and its error."""


def ip(*words: str, check: bool = True) -> str:
    """Run ``ip`` and return its output.

    :raises BridgeError: if it fails and ``check`` is true.
    """
    result = subprocess.run(('ip', *words), capture_output=True, text=True)
    if check and result.returncode:
        raise BridgeError(f'ip {" ".join(words)}: {result.stderr.strip()}')
    return result.stdout


class Bridges:
    """Bridges ``<tag>br0``, ``<tag>br1`` and so on.

    A frame that is sent on the far end of an uplink's veth pair, the "cable",
    comes in by the uplink.

    :param tag: prefix of all names; at most 8 characters, so that the kernel
        accepts them all.
    :param count: number of bridges.
    """

    def __init__(self, tag: str, count: int) -> None:
        self.names = [f'{tag}br{n}' for n in range(count)]
        self.uplinks = [f'{tag}up{n}' for n in range(count)]
        self.cables = [f'{tag}wi{n}' for n in range(count)]
        self._made: list[str] = []

    def make(self) -> None:
        """Create bridges and uplinks.

        :raises BridgeError: if the caller is not root or a name is taken.
        """
        for bridge, uplink, cable in zip(
            self.names, self.uplinks, self.cables, strict=True
        ):
            ip('link', 'add', bridge, 'type', 'bridge')
            self._made.append(bridge)
            ip('link', 'add', uplink, 'type', 'veth', 'peer', 'name', cable)
            self._made.append(uplink)
            # Without IPv6 the kernel sends no neighbour discovery, and the
            # guests' packets are all that a test counts.
            for name in (bridge, uplink, cable):
                subprocess.run(
                    ('sysctl', '-qw', f'net.ipv6.conf.{name}.disable_ipv6=1'),
                    check=False,
                    stderr=subprocess.DEVNULL,
                )
            ip('link', 'set', uplink, 'master', bridge)
            for name in (bridge, uplink, cable):
                ip('link', 'set', name, 'up')

    def remove(self) -> None:
        """Remove bridges and uplinks; may be called again."""
        for name in reversed(self._made):
            ip('link', 'delete', name, check=False)
        self._made.clear()


@contextlib.contextmanager
def traffic(cable: str, frames_per_s: int = 4000) -> Iterator[None]:
    """Send broadcast frames to an uplink during a ``with`` block.

    :param cable: name of the uplink's far end.
    :param frames_per_s: number of frames per second.
    """
    stop = threading.Event()
    frame = b'\xff' * 6 + b'\x02vhpc!' + b'\x88\xb5' + b'\0' * 86

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((cable, 0))
            burst = max(1, frames_per_s // 100)
            while not stop.wait(0.01):
                for _ in range(burst):
                    with contextlib.suppress(BlockingIOError):
                        raw.send(frame, socket.MSG_DONTWAIT)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
