# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Runs the screen of ``nova-vhpc-top`` until it is left."""

import os
import signal
import threading

from nova_vhpc.top.app import TopApp

END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

END_S = 10.0
"""Time to leave in after a signal, in seconds."""


def run(top: TopApp) -> int:
    """Run the screen until it is left, by a key or a signal.

    A signal leaves the terminal as it was before. Textual waits for ever if
    the terminal is gone, in its event loop, too; the process then ends all
    the same.

    :returns: exit status.
    """

    def end(number: int, frame: object) -> None:
        status = 128 + number
        watchdog = threading.Timer(END_S, os._exit, [status])
        watchdog.daemon = True
        watchdog.start()
        top.end(status)

    before = {number: signal.signal(number, end) for number in END_SIGNALS}
    try:
        top.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return top.return_code or 0
