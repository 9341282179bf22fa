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

"""What the agent shows of itself: one dict, and a local socket for it.

The socket takes no words: who may connect (file permissions) gets the
status as one JSON document, and the connection is closed.
"""

import json
import logging
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from nova_vhpc.agent.actuators import window_player
from nova_vhpc.agent.daemon import tick
from nova_vhpc.agent.guests import guest
from nova_vhpc.control import model
from nova_vhpc.linux import cpus

LOG = logging.getLogger(__name__)

PAUSE_S = 0.2
"""After a failed accept: who has no descriptors must not spin."""

SOCKET_NAME = 'agent.sock'
VERSION = 1


def socket_path(run_path: str) -> str:
    """Where the status socket is."""
    return str(pathlib.Path(run_path, SOCKET_NAME))


def vm_status(
    target: guest.Guest,
    view: model.VmView | None,
    plan: model.VmPlan | None,
    period_us: int = 0,
    remarks: Sequence[str] = (),
) -> dict[str, Any]:
    """One VM; units are in the names.

    :param period_us: control period, which ``run_us`` is given for.
    :param remarks: what could not be used or done in the last tick, and why.
    """
    now = target.in_force
    sample = view.sample if view is not None else model.Sample()
    return {
        'uuid': target.uuid,
        'name': target.name,
        'workload': target.info.specs.workload,
        'cluster': view.cluster if view is not None else None,
        'vcpus': target.info.vcpus,
        'phase': plan.phase.value if plan is not None else None,
        'slice_us': plan.slice_us if plan is not None else None,
        'reason': plan.reason if plan is not None else '',
        'remarks': list(remarks),
        'period_us': now.period_us,
        'quota_us': now.quota_us,
        'shares': now.shares,
        'vcpu_pins': _pins(now),
        'planned': None if plan is None else _tune(plan.tune),
        'original': _tune(target.first_tune),
        'sync_latency_us': sample.sync_latency_us,
        'io_events': sample.io_events,
        'run_us': target.reader.run_us(period_us),
        'predicted_events': plan.predicted_events if plan else None,
        'threshold_events': plan.threshold_events if plan else None,
        'repin': target.repin,
        'released': sorted(target.released),
        'hands_off': target.hands_off,
        'journalled': target.journalled,
        'writes': target.writes,
        'moves': target.moves,
        'failures': target.failures.count,
        'quarantined': target.failures.quarantined,
        'problem': target.failures.problem,
    }


def _tune(tune: model.CpuTune) -> dict[str, Any]:
    return {
        'period_us': tune.period_us,
        'quota_us': tune.quota_us,
        'shares': tune.shares,
        'vcpu_pins': _pins(tune),
    }


def _pins(tune: model.CpuTune) -> list[str] | None:
    if tune.vcpu_pins is None:
        return None
    return [cpus.format_cpu_set(pin) for pin in tune.vcpu_pins]


def vm_statuses(
    guests: dict[str, guest.Guest], result: tick.TickResult | None
) -> list[dict[str, Any]]:
    """All VMs as of the last tick, by name."""
    views = {} if result is None else {vm.uuid: vm for vm in result.view.vms}
    plans = {} if result is None else result.plan.vms
    period_us = 0 if result is None else result.view.period_us
    remarks: dict[str, list[str]] = {}
    for remark in () if result is None else result.plan.ignored:
        remarks.setdefault(remark.uuid, []).append(remark.reason)
    return sorted(
        (
            vm_status(
                target,
                views.get(uuid),
                plans.get(uuid),
                period_us,
                remarks.get(uuid, ()),
            )
            for uuid, target in guests.items()
        ),
        key=lambda status: status['name'],
    )


def window_status(
    played: window_player.WindowStatus, schedule: model.WindowSchedule | None
) -> dict[str, Any]:
    """The gang windows in force."""
    return {
        'playing': played.playing,
        'turn': played.turn,
        'borders': played.borders,
        'writes': played.writes,
        'failures': played.failures,
        'late_us': played.late_us,
        'worst_late_us': played.worst_late_us,
        'turns': []
        if schedule is None
        else [
            {'width_us': turn.width_us, 'favoured': sorted(turn.favoured)}
            for turn in schedule.turns
        ],
    }


class StatusServer:
    """Gives the status to whoever may open the socket.

    :param path: of the socket.
    :param mode: its file mode.
    :param status: makes the document.
    """

    def __init__(
        self, path: str, mode: int, status: Callable[[], dict[str, Any]]
    ) -> None:
        self.path = path
        self._mode = mode
        self._status = status
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Listen, in a thread. Raises OSError."""
        pathlib.Path(self.path).unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Nobody may slip in before the mode is set.
        mask = os.umask(0o177)
        try:
            server.bind(self.path)
        finally:
            os.umask(mask)
        os.chmod(self.path, self._mode)
        server.listen(8)
        self._socket = server
        threading.Thread(
            target=self._serve, name='status', daemon=True
        ).start()

    def stop(self) -> None:
        """Close and remove the socket."""
        if self._socket is not None:
            # In this order: the thread must tell the end from a failure.
            server, self._socket = self._socket, None
            server.close()
            pathlib.Path(self.path).unlink(missing_ok=True)

    def _serve(self) -> None:
        server = self._socket
        assert server is not None
        failed = False
        while self._socket is server:
            try:
                client, _ = server.accept()
            except OSError as error:
                if self._socket is not server:
                    return
                if not failed:
                    failed = True
                    LOG.warning('The status is not shown for now: %s', error)
                time.sleep(PAUSE_S)
                continue
            if failed:
                failed = False
                LOG.info('The status is shown again')
            with client:
                try:
                    client.settimeout(2.0)
                    client.sendall(json.dumps(self._status()).encode() + b'\n')
                except OSError:
                    continue
                except Exception:
                    LOG.exception('The status could not be made')


def fetch(path: str, timeout_s: float = 5.0) -> dict[str, Any]:
    """Ask an agent for its status.

    :raises OSError: no agent there, or no permission.
    :raises ValueError: the answer was cut off.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        client.connect(path)
        parts = []
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            part = client.recv(65536)
            if not part:
                break
            parts.append(part)
    answer: dict[str, Any] = json.loads(b''.join(parts))
    return answer
