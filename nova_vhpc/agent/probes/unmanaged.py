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


"""VMs that did not opt in: how much CPU they want. Read, never written.

Gang windows must leave such VMs their fair share, so the controller has to
know of them. Two libvirt calls per VM when it starts or its XML changes; per
tick, one pread per vCPU. vCPUs on other CPUs than ours, such as dedicated
ones, compete with nobody of ours and are not shown.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import libvirt

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.probes import base, schedstat
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)


class _Neighbour:
    __slots__ = ('last_us', 'pins', 'reader', 'tune', 'vcpus')

    def __init__(
        self,
        vcpus: int,
        pins: tuple[frozenset[int], ...] | None,
        tune: model.CpuTune,
        reader: base.SyncReader | None,
    ) -> None:
        self.vcpus = vcpus
        self.pins = pins
        self.tune = tune
        self.reader = reader
        self.last_us = 0


class UnmanagedVms:
    """Followed by libvirt's workers, read by the tick.

    :param host: reads the QEMU processes.
    :param usable: gives the CPUs that our VMs may be pinned to.
    :ivar usable: the same.
    """

    def __init__(
        self,
        host: qemu_process.Processes,
        usable: Callable[[], frozenset[int]],
    ) -> None:
        self._host = host
        self.usable = usable
        self._probe = schedstat.SchedstatProbe(
            base.Host(proc_root=str(host.proc))
        )
        self._lock = threading.Lock()
        self._known: Mapping[str, _Neighbour] = {}
        # A reader may be in use by the tick, which therefore closes it.
        self._closing: list[base.SyncReader] = []

    def follow(self, uuid: str, domain: Any, vcpus: int) -> None:
        """Begin, or begin again, to read a VM."""
        pins, usable = self._pins(uuid, domain), self.usable()
        # With ``hw:cpu_policy=mixed`` some vCPUs are near and some are not.
        near = tuple(
            vcpu
            for vcpu in range(vcpus)
            if vcpu not in pins or not usable.isdisjoint(pins[vcpu])
        )
        if not near:
            self.forget(uuid)
            return
        pid = self._host.find(uuid)
        tids = self._host.vcpu_threads(pid, vcpus) if pid else ()
        if tids:
            tids = tuple(tids[vcpu] for vcpu in near)
        reader = self._probe.attach(base.Target(uuid, '', pid, tids))
        found: Mapping[str, int] = {}
        try:
            found = domain.schedulerParametersFlags(cputune.LIVE)
        except libvirt.libvirtError as error:
            LOG.debug('Domain %s: %s', uuid, error)
        quota = found.get(cputune.QUOTA, model.UNLIMITED)
        tune = model.CpuTune(
            found.get(cputune.PERIOD),
            model.UNLIMITED if cputune.is_unlimited(quota) else quota,
            found.get(cputune.SHARES),
        )
        known = None
        if pins.keys() >= set(near):
            known = tuple(pins[vcpu] for vcpu in near)
        self._replace(uuid, _Neighbour(len(near), known, tune, reader))

    def forget(self, uuid: str) -> None:
        """The VM is gone, or opted in, or has none of our CPUs."""
        if uuid in self._known:
            self._replace(uuid, None)

    def views(self, now_us: int) -> tuple[model.OtherVm, ...]:
        """What the tick shows to the controller.

        :param now_us: monotonic time of this tick.
        """
        if self._closing:
            with self._lock:
                closing, self._closing = self._closing, []
            for reader in closing:
                reader.close()
        return tuple(
            model.OtherVm(
                uuid,
                known.vcpus,
                known.tune.shares,
                _sample(known, now_us),
                known.tune.share,
                known.pins,
            )
            for uuid, known in self._known.items()
        )

    def _pins(self, uuid: str, domain: Any) -> dict[int, frozenset[int]]:
        """CPUs of each vCPU; none where libvirt cannot tell."""
        try:
            pins = domain.vcpuPinInfo(cputune.LIVE)
        except libvirt.libvirtError as error:
            LOG.debug('Domain %s: %s', uuid, error)
            return {}
        return {vcpu: cputune.pin_cpus(pin) for vcpu, pin in enumerate(pins)}

    def _replace(self, uuid: str, new: _Neighbour | None) -> None:
        with self._lock:
            known = dict(self._known)
            old = known.pop(uuid, None)
            if old is not None and old.reader is not None:
                self._closing.append(old.reader)
            if new is not None:
                known[uuid] = new
            self._known = known


def _sample(known: _Neighbour, now_us: int) -> model.Sample:
    if known.reader is None:
        return model.Sample()
    elapsed_us = now_us - known.last_us
    first = known.last_us == 0
    known.last_us = now_us
    reading = known.reader.read()
    if reading is None or first or elapsed_us <= 0:
        return model.Sample()
    return model.Sample(
        vcpu_run_us=reading.run_us,
        vcpu_wait_us=reading.wait_us,
        vcpu_runs=reading.runs,
        elapsed_us=elapsed_us,
    )
