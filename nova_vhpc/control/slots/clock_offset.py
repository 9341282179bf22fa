# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""How far this host's wall clock is from those of other hosts.

A message says when it was sent. Its lag, the time from then until it arrives,
by two clocks, is its delay and the difference of the clocks. The delay of two
hosts' quickest messages to each other is about the same in both directions,
so half the difference of these two lags is the difference of the clocks.
"""

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from nova_vhpc.control.slots import messages

WINDOW_US = 15_000_000
"""The quickest message of this and the last such time counts."""

LIMIT_US = 10_000
"""Slots are not played if the clock is off by more."""

RETURN_US = 5_000
"""They are played again if it is off by less."""

ENOUGH = 5
"""Messages of a host of which the quickest one counts: a single one may have
waited anywhere."""

MAX_HOSTS = 4096
"""Most hosts whose clocks are compared; one more takes the place of the host
that was heard least lately."""


class _Lag(NamedTuple):
    """Least lag of a host's messages, in this window and the one before.

    :ivar heard: number of messages.
    """

    heard: int
    window: int
    now_us: int
    before_us: int

    @property
    def least_us(self) -> int:
        return min(self.now_us, self.before_us)


class ClockOffset:
    """Compares this host's clock with those of other hosts.

    With two hosts nobody knows which clock is wrong, so both are off; with
    more the median tells.

    :param host: name of this host.
    :ivar is_off: whether this host's clock is off.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._lags: dict[str, _Lag] = {}
        self._stated: dict[str, tuple[int, int]] = {}
        self._next = 0
        self.is_off = False

    def heard(
        self,
        host: str,
        sent_us: int,
        arrived_us: int,
        lags: Mapping[str, int],
        now_us: int,
    ) -> None:
        """Take a message of another host.

        :param sent_us: its wall clock when it was sent; 0 if unknown.
        :param arrived_us: this host's wall clock when it arrived.
        :param lags: lags of other hosts' messages that it states.
        """
        if not sent_us:
            return
        lag_us = arrived_us - sent_us
        window = now_us // WINDOW_US
        # The host that was heard least lately comes first.
        last = self._lags.pop(host, None)
        if last is None and len(self._lags) >= MAX_HOSTS:
            silent = next(iter(self._lags))
            del self._lags[silent]
            self._stated.pop(silent, None)
        if last is None or window - last.window > 1:
            last = _Lag(0, window, lag_us, lag_us)
        elif window != last.window:
            last = _Lag(last.heard, window, lag_us, last.now_us)
        else:
            last = last._replace(now_us=min(last.now_us, lag_us))
        self._lags[host] = last._replace(heard=last.heard + 1)
        if self._host in lags:
            self._stated[host] = (lags[self._host], now_us)

    def lags(self) -> dict[str, int]:
        """Return lags to state in a message, of other hosts each time."""
        names = sorted(filter(self._is_known, self._lags))
        if names:
            self._next = (self._next + 1) % len(names)
            names = names[self._next :] + names[: self._next]
        return {
            host: self._lags[host].least_us
            for host in names[: messages.MAX_LAGS]
        }

    def _is_known(self, host: str) -> bool:
        """Return whether enough messages of a host have arrived."""
        lag = self._lags.get(host)
        return lag is not None and lag.heard >= ENOUGH

    def offset_us(self, now_us: int) -> int | None:
        """Return by how much this host's clock is ahead; None if unknown.

        Also brings ``is_off`` up to date.
        """
        for host, one in list(self._lags.items()):
            if now_us // WINDOW_US - one.window > 4:
                del self._lags[host]
                self._stated.pop(host, None)
        differences = [
            (self._lags[host].least_us - lag_us) // 2
            for host, (lag_us, at_us) in self._stated.items()
            if now_us - at_us <= 4 * WINDOW_US and self._is_known(host)
        ]
        if not differences:
            self.is_off = False
            return None
        offset_us = round(statistics.median(differences))
        self.is_off = abs(offset_us) > (RETURN_US if self.is_off else LIMIT_US)
        return offset_us
