# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Adopt a domain: restore what an earlier agent left, then read it."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import cpu_hotplug
from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.lifecycle import after_crash
from nova_vhpc.agent.probes import base, sampler
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import cpus

LOG = logging.getLogger(__name__)


def sync_every(info: domain_xml.DomainInfo, others: int) -> int:
    """Return the number of ticks between two reads of the latency.

    The synchronisation latency of parallel guests is read in each tick (1),
    because their time slices depend on it.

    :param others: number of ticks for all other guests.
    """
    return 1 if info.specs.workload == 'parallel' else others


def log_vcpu_gap(info: domain_xml.DomainInfo) -> None:
    """Log that a guest is not managed because vCPUs between others are off."""
    LOG.warning(
        'VM %s: not managed while vCPUs between others are off; online are '
        '%s. Switch the missing ones on with virsh setvcpu, or restart the '
        'server',
        info.name,
        cpus.format_cpu_set(info.online_vcpus),
    )


class Adoption:
    """Makes a :class:`.Guest` of a domain.

    :param cpu_hotplug: knows the host's CPUs that are online.
    """

    def __init__(
        self,
        context: HostContext,
        options: Any,
        crash_recovery: after_crash.CrashRecovery,
        sampler: sampler.Sampler,
        cpu_hotplug: cpu_hotplug.CpuHotplug,
        forget_shares: Callable[[str], None],
    ) -> None:
        self._context = context
        self._options = options
        self._crash_recovery = crash_recovery
        self._sampler = sampler
        self._cpu_hotplug = cpu_hotplug
        self._forget_shares = forget_shares

    def adopt(
        self,
        domain: Any,
        info: domain_xml.DomainInfo,
        version: registry.DomainVersion,
    ) -> None:
        """Manage a domain, unless the agent ends meanwhile.

        :param info: what the domain's live XML says.
        :param version: the domain's run, and the hash of that XML.
        :raises RestoreError: the domain still has values of an earlier agent.
        :raises libvirt.libvirtError: libvirt refused a call.
        """
        if info.uuid in self._context.guests.by_uuid:
            # Its run has ended.
            self._context.guests.remove_ended_run(info.uuid)
        copy = record = None
        with contextlib.suppress(JournalError):
            copy = store.get_metadata(domain)
        with contextlib.suppress(JournalError):
            record = self._context.journal.load(info.uuid)
        identity = self._context.processes.identity(info.uuid, domain.ID())
        if record is not None and not record.identity.same_run(identity):
            # Another run may have had another flavor.
            record = None
        outcome = self._crash_recovery.recover(domain, info.name)
        if outcome is recovery.Outcome.FROM_DEFINITION_NEWER:
            self._context.guests.refuse(
                info.uuid, "a newer agent's journal has a record of it"
            )
            return
        if outcome is not recovery.Outcome.NOTHING:
            LOG.info('VM %s: %s', info.name, outcome)
        # Kept while the domain migrates; removed by this agent if it stays.
        has_copy = copy is not None and store.get_metadata(domain) is not None
        earlier = copy or record
        now = cputune.read(domain)
        online = self._cpu_hotplug.online()
        repin = earlier.repin if earlier else _repin(domain, now, online)
        reader, tids = self.open(info, identity.pid)
        guest = Guest(
            info=info,
            domain=domain,
            domain_id=version[0],
            identity=identity,
            original=now,
            expected=now,
            reader=reader,
            tids=tids,
            xml_hash=version[1],
            confined_to=self._context.processes.confined_to(identity.pid),
            online=online,
            repin=repin and not info.dedicated,
            copy_for_destination=has_copy,
            external=record.external if record else frozenset(),
        )
        if guest.external:
            guest.holds.add(Hold.EXTERNAL)
        if info.vcpu_numbers:
            log_vcpu_gap(info)
            guest.holds.add(Hold.VCPU_GAP)
        guest.set_allowed_cpus(now.cpus)
        self._hold(guest)
        if self._context.permission.ending.is_set():
            return
        self._context.guests.add(guest)
        # A pause, restore or resume meanwhile did not find this guest yet.
        self._hold(guest)
        # The player may have written other shares to an earlier run.
        self._forget_shares(info.uuid)
        LOG.info(
            'VM %s: managed as %s%s%s',
            info.name,
            info.specs.workload,
            '' if guest.repin else ', never pinned',
            ', but only after it starts anew or is resumed, because of an '
            'external change'
            if guest.external
            else '',
        )

    def _hold(self, guest: Guest) -> None:
        """Set the guest's holds according to the write permission."""
        for hold, applies in (
            (Hold.PAUSED, self._context.permission.paused),
            (Hold.RESTORED, guest.uuid in self._context.permission.restored),
            (Hold.LEAVING, guest.uuid in self._context.permission.leaving),
        ):
            if applies:
                guest.holds.add(hold)
            else:
                guest.holds.discard(hold)

    def open(
        self, info: domain_xml.DomainInfo, pid: int
    ) -> tuple[sampler.VmReader, tuple[int, ...]]:
        """Open a guest's probes.

        :param pid: process ID of QEMU; 0 if it was not found.
        :returns: the guest's reader, and the thread IDs of its vCPUs.
        """
        processes = self._context.processes
        vcpus = info.online_vcpus
        tids = processes.vcpu_threads(pid, vcpus) if pid else ()
        reader = self._sampler.attach(
            base.Target(
                info.uuid,
                info.name,
                pid,
                tids,
                processes.vcpu_cgroups(pid, vcpus) if pid else (),
                processes.block_cgroup(pid) if pid else None,
                info.taps,
            ),
            sync_every(info, self._options.other_sync_ticks),
        )
        return reader, tids


def _repin(domain: Any, now: cputune.Cputune, online: frozenset[int]) -> bool:
    """Return whether a guest that the agent has not written may be pinned.

    Nova stores the live XML of a server that it has migrated as the persistent
    XML. ``<vcpupin>`` elements of an agent may therefore stay in both. So a
    guest with pins to all CPUs that Nova gives to guests counts as not pinned.
    """
    info = domain_xml.parse(
        domain.XMLDesc(0), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    )
    return info.repin or (
        now.is_floating(info.cpuset, online) and not info.placed
    )
