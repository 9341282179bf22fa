# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Measure the CPU demand of unmanaged VMs. They are read, never written.

Gang windows must leave unmanaged VMs their fair share, so the controller must
know their demand. Cost: two libvirt calls per VM when it starts or its XML
changes, and one pread per vCPU and tick. vCPUs on CPUs that no guest may use,
such as dedicated ones, do not compete with guests and are left out.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import libvirt

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.probes import base, schedstat
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)


class _UnmanagedVm:
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
    """The unmanaged VMs of the host.

    Updated in the threads of the executor, read by the tick.

    :param usable: returns the CPUs that guests may be pinned to.
    :ivar usable: the same callable.
    """

    def __init__(
        self,
        processes: qemu_process.Processes,
        usable: Callable[[], frozenset[int]],
    ) -> None:
        self._processes = processes
        self.usable = usable
        self._probe = schedstat.SchedstatProbe(
            base.Host(proc_root=str(processes.proc))
        )
        self._lock = threading.Lock()
        self._vms: Mapping[str, _UnmanagedVm] = {}
        # A reader may be in use by the tick, which therefore closes it.
        self._closing: list[base.SyncReader] = []

    def follow(self, uuid: str, domain: Any, vcpus: Sequence[int]) -> None:
        """Start to read a VM, or read its settings again.

        :param vcpus: numbers of its online vCPUs.
        """
        pins, usable = self._pins(uuid, domain), self.usable()
        # With ``hw:cpu_policy=mixed`` only some vCPUs compete with guests.
        competing = tuple(
            vcpu
            for vcpu in vcpus
            if vcpu not in pins or not usable.isdisjoint(pins[vcpu])
        )
        if not competing:
            self.forget(uuid)
            return
        pid = self._processes.find(uuid, domain.ID())
        tids = self._processes.vcpu_threads(pid, vcpus) if pid else ()
        if tids:
            tids = tuple(tids[vcpus.index(vcpu)] for vcpu in competing)
        reader = self._probe.attach(base.Target(uuid, '', pid, tids))
        parameters: Mapping[str, int] = {}
        try:
            parameters = domain.schedulerParametersFlags(cputune.LIVE)
        except libvirt.libvirtError as error:
            LOG.debug('Domain %s: %s', uuid, error)
        quota = parameters.get(cputune.QUOTA, model.UNLIMITED)
        tune = model.CpuTune(
            parameters.get(cputune.PERIOD),
            model.UNLIMITED if cputune.is_unlimited(quota) else quota,
            parameters.get(cputune.SHARES),
        )
        known_pins = None
        if pins.keys() >= set(competing):
            known_pins = tuple(pins[vcpu] for vcpu in competing)
        self._replace(
            uuid, _UnmanagedVm(len(competing), known_pins, tune, reader)
        )

    def forget(self, uuid: str) -> None:
        """Stop reading a VM: it is gone, managed, or uses other CPUs."""
        if uuid in self._vms:
            self._replace(uuid, None)

    def views(self, now_us: int) -> tuple[model.OtherVm, ...]:
        """Return the VMs with their samples, for the controller.

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
                vm.vcpus,
                vm.tune.shares,
                _sample(vm, now_us),
                vm.tune.share,
                vm.pins,
            )
            for uuid, vm in self._vms.items()
        )

    def _pins(self, uuid: str, domain: Any) -> dict[int, frozenset[int]]:
        """Return the CPUs of each vCPU; empty if libvirt cannot say."""
        try:
            pins = domain.vcpuPinInfo(cputune.LIVE)
        except libvirt.libvirtError as error:
            LOG.debug('Domain %s: %s', uuid, error)
            return {}
        return {vcpu: cputune.pin_cpus(pin) for vcpu, pin in enumerate(pins)}

    def _replace(self, uuid: str, new: _UnmanagedVm | None) -> None:
        with self._lock:
            vms = dict(self._vms)
            old = vms.pop(uuid, None)
            if old is not None and old.reader is not None:
                self._closing.append(old.reader)
            if new is not None:
                vms[uuid] = new
            self._vms = vms


def _sample(vm: _UnmanagedVm, now_us: int) -> model.Sample:
    if vm.reader is None:
        return model.Sample()
    elapsed_us = now_us - vm.last_us
    first = vm.last_us == 0
    vm.last_us = now_us
    reading = vm.reader.read()
    if reading is None or first or elapsed_us <= 0:
        return model.Sample()
    return model.Sample(
        vcpu_run_us=reading.run_us,
        vcpu_wait_us=reading.wait_us,
        vcpu_runs=reading.runs,
        elapsed_us=elapsed_us,
    )
