# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Asks agents in a thread, so that the screen never waits for them."""

import threading

from textual import app, message

from nova_vhpc.agent import errors
from nova_vhpc.top.sources import Answers, Source, SourceError


class Fetched(message.Message):
    """Agents have answered.

    :param answers: what they said.
    """

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self.answers = answers


class Failed(message.Message):
    """No agent has answered.

    :param reason: why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


class Poller:
    """Sends :class:`Fetched` or :class:`Failed` to a screen, again and again.

    :param target: gets the messages.
    :param source: is asked.
    :param interval_s: time between an answer and the next question, in
        seconds.
    """

    def __init__(
        self, target: app.App[None], source: Source, interval_s: float
    ) -> None:
        self._target = target
        self._source = source
        self._interval_s = interval_s
        self._stopped = threading.Event()

    def start(self) -> None:
        """Ask from now on."""
        # A daemon: leaving must not wait for an agent that is silent.
        threading.Thread(target=self._run, name='poller', daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                found: message.Message = Fetched(self._source.fetch())
            except SourceError as error:
                found = Failed(str(error))
            except Exception as error:
                # Of a library; without an answer the thread must go on.
                found = Failed(errors.one_line(error))
            if not self._stopped.is_set():
                self._target.post_message(found)
