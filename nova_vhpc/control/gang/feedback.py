# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Hold every VM's CPU time at its entitlement, by measurement.

What gang windows do to a VM depends on more than arithmetic can foresee: how
fast the kernel spreads the vCPUs of a neighbour in a pause, what else runs on
the host. So the CPU time that each CPU-bound VM really received is compared
with its entitlement, which is what stock Linux would give it, and three levers
are moved:

* the *pause correction* makes pauses longer while VMs outside of gangs are
  short of CPU time, and shorter while gangs are;
* the *share correction* of a gang member gives its gang more of the rotation
  while it is short;
* windows are switched off for a while if some VM lacks more than
  ``harm_limit`` in spite of that.

Before the first window, and with every new mix of VMs, the host is watched
without windows: what a VM gets there even stock Linux does not give it more
of.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from nova_vhpc.control import model

HORIZON_US = 4_000_000
"""Time constant of the received parts."""

WATCHED = 'the host is first watched without them'
HARMFUL = 'they took too much CPU time from a VM; tried again later'
"""Reasons for no windows."""

WATCH_US = 3_000_000
"""Time for which a new mix of VMs is watched before windows are played."""

LEAST_LEVEL = 0.5
"""Least part of their entitlements that all VMs together are believed to get
because of what else the host does. Windows take from some VMs and give to
others; what all lack alike is not their doing."""

LEAST_ON_STOCK = 0.95
"""Least part that a VM is believed to receive under stock Linux."""

MOST_DEBT_S = 1.2
DEBT_HORIZON_S = 20.0
"""A debt is the CPU time that a VM lacks, in seconds of its entitlement; it is
forgotten with this time constant, and bounded."""

MOST_AT_ONCE = 16.0
"""Most times its entitlement that a VM is believed to receive in one control
period. In its window a VM does receive a multiple of it."""

PAUSE_PER_S = 1.0
"""Pause correction for each second of debt, as a part of what pauses should
have. More would overshoot: what a pause gave is known a rotation later."""

SHARE_PER_S = 0.3
"""Share correction for each second of debt."""

PATIENCE_US = 5_000_000
HASTE = 4.0
"""Time for which a VM may lack more than ``harm_limit``: the corrections need
some seconds. It may lack four times as much for half as long, and so on, up to
this many times."""

LEAST_OFF_US = 60_000_000
MOST_OFF_US = 3_600_000_000
"""Shortest and longest time for which windows are off before the next trial.
It doubles with each trial that fails."""


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """CPU time of one VM in a control period, in CPUs.

    :ivar entitled: what stock Linux would give it.
    :ivar received: what it got.
    """

    entitled: float
    received: float


@dataclasses.dataclass(slots=True)
class _Received:
    """Received part of one VM.

    :ivar part: moving average of received / entitled.
    :ivar on_stock: the same without windows, 1.0 at most.
    :ivar elapsed_us: time for which it was measured.
    :ivar debt_s: CPU time that it lacks, in seconds of its entitlement;
        negative if it received too much.
    """

    part: float = 1.0
    on_stock: float = 1.0
    elapsed_us: float = 0.0
    debt_s: float = 0.0

    def add(self, now: float, elapsed_us: float, playing: bool) -> None:
        """Add one control period.

        :param now: received part in it.
        :param playing: whether windows are played.
        """
        self.elapsed_us += elapsed_us
        self.part += (now - self.part) * min(
            1.0, elapsed_us / min(self.elapsed_us, HORIZON_US)
        )
        if not playing:
            self.on_stock = max(LEAST_ON_STOCK, min(1.0, self.part))
            self.debt_s = 0.0
            return
        elapsed_s = elapsed_us / 1e6
        debt_s = self.debt_s * (1 - elapsed_s / DEBT_HORIZON_S)
        self.debt_s = _within(debt_s + (1 - now) * elapsed_s, MOST_DEBT_S)

    @property
    def missing(self) -> float:
        """Part of the entitlement that the VM lacks, by our windows."""
        return max(0.0, 1 - self.part / self.on_stock)


class Feedback:
    """Moves the levers, once per control period.

    :param harm_limit: part of its entitlement that a VM may lack, 0.0 to 1.0.
    :ivar playing: whether windows are to be played.
    :ivar pause_correction: to be added to the part of pauses, -1.0 to 1.0.
    :ivar missing: largest missing part of any VM, 0.0 to 1.0.
    :ivar reason: why no windows are played; empty while they are.
    """

    def __init__(self, harm_limit: float) -> None:
        """Start without any VM."""
        self._harm_limit = harm_limit
        self._received: dict[str, _Received] = {}
        self._mix: frozenset[str] = frozenset()
        self._wait_us = 0.0
        self._harmful_us = 0.0
        self._failures = 0
        self.playing = False
        self.pause_correction = 0.0
        self.missing = 0.0
        self.reason = WATCHED

    def advance(
        self,
        elapsed_us: float,
        gangs: Mapping[str, Account],
        outside: Mapping[str, Account],
        mix: frozenset[str] | None = None,
        guarded: Collection[str] | None = None,
    ) -> None:
        """Take in one control period.

        :param elapsed_us: length of the period, in microseconds.
        :param gangs: members of gangs that were measured, by uuid.
        :param outside: the same of VMs in no gang.
        :param mix: uuids of gangs and CPU-bound VMs, measured or not; those of
            ``gangs`` and ``outside`` if None.
        :param guarded: uuids of the VMs that must not lack CPU time; those of
            ``outside`` if None. What spins may lack some if its vCPUs run
            together for it.
        """
        accounts = {**gangs, **outside}
        if mix is None:
            mix = frozenset(accounts)
        if mix != self._mix:
            self._mix = mix
            self._wait(WATCH_US, WATCHED)
        # What something else on the host takes, all VMs lack alike.
        entitled = sum(account.entitled for account in accounts.values())
        received = sum(account.received for account in accounts.values())
        level = 1.0
        if entitled > 0:
            level = max(LEAST_LEVEL, min(1.0, received / entitled))
        # A VM that was not measured this time keeps what is known of it.
        self._received = {
            uuid: self._received.get(uuid, _Received())
            for uuid in mix | accounts.keys()
        }
        for uuid, account in accounts.items():
            self._received[uuid].add(
                min(MOST_AT_ONCE, account.received / account.entitled / level),
                elapsed_us,
                self.playing,
            )
        if not self.playing:
            self._wait_us -= elapsed_us
            if gangs and self._wait_us <= 0:
                self.playing = True
                self.reason = ''
            return
        if not gangs:
            # Other hosts do not play for them, which is no trial here.
            self._wait(0.0, '')
            return
        of_outside = sum(account.entitled for account in outside.values())
        self._steer(gangs, outside, of_outside / entitled)
        self._guard(elapsed_us, outside if guarded is None else guarded)

    def watch_again(self) -> None:
        """Watch the host without windows, before these are played again."""
        self._wait(WATCH_US, WATCHED)

    @property
    def is_harmful(self) -> bool:
        """Whether windows are off because a VM lacked CPU time."""
        return self.reason == HARMFUL and self._wait_us > 0

    def shares(self) -> model.Shares:
        """Return what each VM received of its entitlement."""
        return model.Shares(
            {uuid: one.part for uuid, one in self._received.items()},
            self.missing,
            float(self.playing),
        )

    def correction(self, uuids: Iterable[str]) -> float:
        """Return the share correction of a gang with these members."""
        return SHARE_PER_S * max(
            (
                self._received[uuid].debt_s
                for uuid in uuids
                if uuid in self._received
            ),
            default=0.0,
        )

    def _steer(
        self,
        gangs: Collection[str],
        outside: Collection[str],
        pause_part: float,
    ) -> None:
        """Correct pauses."""
        if outside:
            self.pause_correction = (
                PAUSE_PER_S
                * pause_part
                * (self._largest_debt_s(outside) - self._largest_debt_s(gangs))
            )

    def _guard(self, elapsed_us: float, guarded: Iterable[str]) -> None:
        """Switch windows off if a VM lacks too much, sooner the more it is."""
        self.missing = max(
            (self._received[uuid].missing for uuid in guarded), default=0.0
        )
        if self.missing <= self._harm_limit:
            self._harmful_us = 0.0
            return
        self._harmful_us += elapsed_us * max(
            1.0, min(self.missing / self._harm_limit / 2, HASTE)
        )
        if self._harmful_us > PATIENCE_US:
            off_us = min(MOST_OFF_US, LEAST_OFF_US * 2**self._failures)
            self._failures += 1
            self._wait(off_us, HARMFUL)

    def _wait(self, wait_us: float, reason: str) -> None:
        """Play no windows for some time."""
        self.playing = False
        self.reason = reason
        self._wait_us = wait_us
        self._harmful_us = 0.0
        self.pause_correction = 0.0
        self.missing = 0.0

    def _largest_debt_s(self, uuids: Iterable[str]) -> float:
        debts = (self._received[uuid].debt_s for uuid in uuids)
        return max(0.0, max(debts, default=0.0))


def _within(value: float, most: float) -> float:
    return max(-most, min(most, value))
