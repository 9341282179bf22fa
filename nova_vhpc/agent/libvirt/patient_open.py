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

"""A connection to libvirt for who does not wait for ever."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent.libvirt import connection


def open_within(
    uri: str, seconds: float, connect: Callable[[str], Any] | None = None
) -> Any:
    """Connect; libvirt itself waits for ever for a libvirtd that hangs.

    :param connect: how to; ``libvirt.open`` without it.
    :raises libvirt.libvirtError: it is refused, or not answered in time.
    """
    answer: queue.SimpleQueue[tuple[Any, libvirt.libvirtError | None]] = (
        queue.SimpleQueue()
    )

    def call() -> None:
        try:
            answer.put(((connect or libvirt.open)(uri), None))
        except libvirt.libvirtError as error:
            answer.put((None, error))

    threading.Thread(target=call, name='libvirt-open', daemon=True).start()
    try:
        conn, error = answer.get(timeout=max(0.0, seconds))
    except queue.Empty:
        raise connection.AwayError(
            f'{uri} does not answer; does it hang?'
        ) from None
    if error is not None:
        raise error
    return conn
