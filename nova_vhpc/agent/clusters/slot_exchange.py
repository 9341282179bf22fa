# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Agrees on the slots of virtual clusters with other hosts.

The tick hands over what its gangs are entitled to, and reads the table; both
only access memory. A thread of its own runs the protocol and sends; messages
arrive with those about phases (:class:`.bus.PeerBus`).
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from nova_vhpc.agent import periodic
from nova_vhpc.agent.clusters import bus
from nova_vhpc.control import leases, model
from nova_vhpc.control.slots import clock_offset, frame, messages, protocol

LOG = logging.getLogger(__name__)

_INTERVAL_S = 0.1
_MAX_BACKOFF_S = 5.0


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def _wall_us() -> int:
    return time.time_ns() // 1000


def _slot(slot: model.ClusterSlot | None) -> dict[str, Any] | None:
    """Return slots as they are shown."""
    return slot and {
        'slots': list(frame.numbers(slot.slots)),
        'epoch': slot.epoch,
    }


def _host_state(report: messages.Report) -> str:
    """Return what a host does about a cluster's slots, as it is shown."""
    if not report.plays:
        return 'refuses'
    return 'rests' if report.rests else 'slots'


class SlotExchange:
    """This host's part in the agreement on slots.

    :param rules: the protocol of this host.
    :param silent: receive only, as in a dry run. No slots are agreed on then.
    """

    def __init__(
        self,
        rules: protocol.SlotProtocol,
        *,
        silent: bool = False,
    ) -> None:
        self._silent = silent
        self._other_lengths: dict[str, int] = {}
        self._protocol = rules
        self._clock = clock_offset.ClockOffset(rules.host)
        self._lock = threading.Lock()
        self._bus: bus.PeerBus | None = None
        self._table: Mapping[str, model.ClusterSlot | None] = {}
        self._offset_us: int | None = None
        self._sent = 0
        self._thread = periodic.PeriodicThread(
            'vhpc-slots',
            self._run_once,
            lambda: _INTERVAL_S,
            _MAX_BACKOFF_S,
            on_stop=self._leave,
        )

    def start(self, peer_bus: bus.PeerBus) -> None:
        """Start to send and decide."""
        self._bus = peer_bus
        if not self._silent:
            self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Tell the other hosts, if the broker answers, and stop."""
        if self._thread.started:
            self._thread.stop(timeout_s)

    def publish(
        self,
        gangs: Iterable[model.GangDemand],
        clusters: Collection[str],
        cpus: int,
    ) -> None:
        """Take note of what wants slots on this host.

        Never waits for the broker.

        :param gangs: what the gangs are entitled to.
        :param clusters: ids of the virtual clusters with members here.
        :param cpus: number of CPUs that gangs may use.
        """
        if not self._thread.started or self._bus is None:
            return
        heard = self._bus.subscribed
        now_us = _now_us()
        wanted = [
            protocol.Gang(
                one.key, one.width, one.part, one.key in clusters, one.plays
            )
            for one in gangs
            # Without the messages of others it would decide for them.
            if one.key in heard or one.key not in clusters
        ]
        present = {*clusters, *(one.key for one in wanted)}
        with self._lock:
            self._protocol.demand(wanted, present, cpus, now_us)

    def table(self) -> Mapping[str, model.ClusterSlot | None]:
        """Return the slots agreed on, by cluster. Never waits."""
        return self._table

    def receive(self, message: messages.Message) -> None:
        """Take a message of another host."""
        now_us, wall_us = _now_us(), _wall_us()
        with self._lock:
            if self._protocol.receive(message, now_us):
                self._clock.heard(
                    message.host,
                    message.wall_us,
                    wall_us,
                    message.lags,
                    now_us,
                )
        self._thread.wake()

    def status(self) -> dict[str, Any]:
        """Return slots, leaders and the clock, for the status socket."""
        now_us = _now_us()
        with self._lock:
            clusters = {
                key: {
                    'slot': _slot(self._table.get(key)),
                    'leads': one.leads,
                    'hosts': {
                        host: _host_state(report)
                        for host, report in sorted(
                            leases.live(one.received, now_us)
                        )
                    },
                }
                for key, one in sorted(self._protocol.clusters.items())
                if one.is_shared
            }
        return {
            'state': self._state(),
            'detail': self._detail(),
            'clock_offset_us': self._offset_us,
            'sent': self._sent,
            'clusters': clusters,
        }

    def _state(self) -> str:
        if not self._thread.started:
            return 'off'
        return 'agreeing' if self._protocol.plays else 'local'

    def _detail(self) -> str:
        if self._clock.is_off and self._offset_us is not None:
            direction = 'ahead of' if self._offset_us > 0 else 'behind'
            return (
                f"this host's clock is {abs(self._offset_us) / 1000:.0f} ms "
                f'{direction} those of other hosts'
            )
        if self._other_lengths:
            host, slot_us = min(self._other_lengths.items())
            return (
                f'[vhpc_control]gang_window_us is {self._protocol.slot_us} '
                f'here and {slot_us} on {host}; other hosts that differ: '
                f'{len(self._other_lengths) - 1}; set it to the same value '
                'on all hosts'
            )
        return ''

    def _run_once(self) -> None:
        """Decide, and send what the protocol wants sent.

        :raises RetryLater: the broker did not accept a message.
        """
        assert self._bus is not None
        now_us = _now_us()
        with self._lock:
            self._check_clock(now_us)
            outbox = self._protocol.step(now_us)
            self._table = self._protocol.agreed
            before = self._other_lengths
            self._other_lengths = self._protocol.other_lengths
        if self._other_lengths and not before:
            LOG.warning('%s', self._detail())
        for position, message in enumerate(outbox):
            try:
                self._send(message)
            except bus.BusError as error:
                with self._lock:
                    for unsent in outbox[position:]:
                        self._protocol.unsent(unsent)
                # The phase exchange tells of a bus that is away.
                raise periodic.RetryLater from error

    def _send(self, message: messages.Message) -> None:
        assert self._bus is not None
        with self._lock:
            lags = self._clock.lags()
        self._bus.send_slots(
            dataclasses.replace(message, wall_us=_wall_us(), lags=lags)
        )
        self._sent += 1

    def _check_clock(self, now_us: int) -> None:
        was_off = self._clock.is_off
        self._offset_us = self._clock.offset_us(now_us, self._protocol.live)
        is_off = self._clock.is_off
        if is_off == was_off:
            return
        self._protocol.set_plays(not is_off)
        if is_off:
            LOG.warning(
                'Virtual clusters on several hosts have no gang windows: %s',
                self._detail(),
            )
        else:
            LOG.info(
                'Virtual clusters on several hosts may have gang windows '
                'again: the clock agrees with those of other hosts'
            )

    def _leave(self) -> None:
        self._table = {}
        with self._lock:
            outbox = self._protocol.leave(_now_us())
        try:
            for message in outbox:
                self._send(message)
        except bus.BusError as error:
            LOG.debug(
                'Slots not withdrawn, their leases will run out: %s', error
            )
