# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Make services of this machine's loopback reachable from other namespaces.

Run as ``python -m nova_vhpc_lab.stack.relay PORTS NAMESPACE...``. PORTS are
separated by commas. On each of these ports of each network namespace's
loopback, connections are accepted and passed on to the same port of this
machine's loopback, so that one URL is valid everywhere.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import sys

_CLONE_NEWNET = 0x40000000
_CHUNK_BYTES = 65536


def enter(path: str) -> None:
    """Move this thread into a network namespace.

    :param path: file of the namespace.
    """
    # os.setns needs Python 3.12.
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path) as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f'setns: {os.strerror(number)}')


def listen(namespace: str, ports: list[int]) -> list[socket.socket]:
    """Return sockets that listen on ports of a namespace's loopback."""
    # A socket stays in the namespace where it was made.
    with open('/proc/thread-self/ns/net') as own:
        enter(f'/run/netns/{namespace}')
        try:
            return [
                socket.create_server(('127.0.0.1', port), backlog=64)
                for port in ports
            ]
        finally:
            enter(f'/proc/self/fd/{own.fileno()}')


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Copy a stream until its end, then end the other one."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


async def serve(door: socket.socket) -> None:
    """Pass on all connections to a socket."""
    port = door.getsockname()[1]

    async def accept(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            there = await asyncio.open_connection('127.0.0.1', port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
        for one in (writer, there[1]):
            one.close()

    server = await asyncio.start_server(accept, sock=door)
    await server.serve_forever()


async def relay(doors: list[socket.socket]) -> None:
    """Serve all sockets."""
    await asyncio.gather(*map(serve, doors))


def main() -> None:
    """Run the program."""
    ports = [int(word) for word in sys.argv[1].split(',')]
    doors = [
        door for namespace in sys.argv[2:] for door in listen(namespace, ports)
    ]
    print('ready', flush=True)
    asyncio.run(relay(doors))


if __name__ == '__main__':
    main()
