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

"""Taking a VM in: put back what is left of us, note how it is."""

import contextlib
import logging
from typing import Any

import libvirt

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import cpu_hotplug, policy
from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import domain_metadata, store
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.lifecycle import after_crash
from nova_vhpc.agent.probes import base, sampler
from nova_vhpc.agent.restore import recovery

LOG = logging.getLogger(__name__)


def sync_every(info: domain_xml.DomainInfo, others: int) -> int:
    """In how many ticks a VM's synchronisation latency is read once.

    :param others: for all but parallel VMs, whose slices follow it.
    """
    return 1 if info.specs.workload == 'parallel' else others


class Adoption:
    """Makes a :class:`.Guest` of a domain.

    :param context: the agent's collaborators.
    :param options: ``[vhpc_agent]``.
    :param crash_recovery: restores what an agent that crashed has left.
    :param sampler: opens the guests' probes.
    :param cpu_hotplug: knows the host's CPUs that are online.
    :param share_observer: plays the gang windows.
    :param sliced: whether vCPU threads may have kernel slices of the agent.
    """

    def __init__(
        self,
        context: HostContext,
        options: Any,
        crash_recovery: after_crash.CrashRecovery,
        sampler: sampler.Sampler,
        cpu_hotplug: cpu_hotplug.CpuHotplug,
        share_observer: policy.ShareObserver,
        sliced: bool,
    ) -> None:
        self._context = context
        self._options = options
        self._crash_recovery = crash_recovery
        self._sampler = sampler
        self._cpu_hotplug = cpu_hotplug
        self._share_observer = share_observer
        self._sliced = sliced

    def adopt(
        self, domain: Any, info: domain_xml.DomainInfo, seen: registry.Seen
    ) -> None:
        """Take a VM in.

        :param seen: the run of the domain, and the hash of its XML.
        :raises restore.RestoreError: what a crash left is still in it.
        """
        if info.uuid in self._context.guests.by_uuid:
            # An earlier run of it; a refusal is to be told but once.
            self._context.guests.dismiss(info.uuid)
        copy = before = None
        with contextlib.suppress(store.JournalError):
            copy = domain_metadata.get(domain)
        with contextlib.suppress(store.JournalError):
            before = self._context.journal.load(info.uuid)
        identity = self._context.processes.identity(info.uuid, domain.ID())
        if before is not None and not before.identity.same_run(identity):
            # Of another run, maybe of another flavor.
            before = None
        outcome = self._crash_recovery.recover(domain, info.name)
        if outcome is recovery.Outcome.FROM_DEFINITION_NEWER:
            self._context.guests.refuse(
                info.uuid, "a newer agent's journal stands in the way"
            )
            return
        if outcome is not recovery.Outcome.NOTHING:
            LOG.info('VM %s: %s', info.name, outcome)
        known = copy or before
        now = cputune.read(domain)
        online = self._cpu_hotplug.online()
        repin = known.repin if known else _repin(domain, now, online)
        reader, tids = self.open(info, identity.pid)
        guest = Guest(
            info=info,
            domain=domain,
            domain_id=seen[0],
            identity=identity,
            original=now,
            expected=now,
            reader=reader,
            tids=tids,
            xml_hash=seen[1],
            confined_to=self._context.processes.confined_to(identity.pid),
            online=online,
            repin=repin and not info.dedicated,
            sliced=self._sliced,
            external=before.external if before else frozenset(),
        )
        if guest.external:
            guest.holds.add(Hold.EXTERNAL)
        guest.allow(now.cpus)
        self._hold(guest)
        if self._context.permission.ending.is_set():
            return
        self._context.guests.add(guest)
        # Whoever opened or closed the gate meanwhile did not see this VM.
        self._hold(guest)
        # Of an earlier run the player may know shares that are not in force.
        self._share_observer.forget(info.uuid)
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
        """Take over what speaks against a write from the gate."""
        for why, holds in (
            (Hold.PAUSED, self._context.permission.paused),
            (Hold.RESTORED, guest.uuid in self._context.permission.restored),
            (Hold.LEAVING, guest.uuid in self._context.permission.leaving),
        ):
            if holds:
                guest.holds.add(why)
            else:
                guest.holds.discard(why)

    def open(
        self, info: domain_xml.DomainInfo, pid: int
    ) -> tuple[sampler.VmReader, tuple[int, ...]]:
        """Open a VM's probes.

        :param pid: of QEMU; 0 if it was not found.
        :returns: its reader, and the thread ids of its vCPUs.
        """
        processes = self._context.processes
        tids = processes.vcpu_threads(pid, info.vcpus) if pid else ()
        reader = self._sampler.attach(
            base.Target(
                info.uuid,
                info.name,
                pid,
                tids,
                processes.vcpu_cgroups(pid, info.vcpus) if pid else (),
                processes.block_cgroup(pid) if pid else None,
                info.taps,
            ),
            sync_every(info, self._options.other_sync_ticks),
        )
        return reader, tids


def _repin(domain: Any, now: cputune.Cputune, online: frozenset[int]) -> bool:
    """Whether a VM that we have not written to may be pinned.

    Nova makes the live XML that it migrates the persistent one, too. So
    pins of ours come there, and their elements stay there for good.
    """
    info = domain_xml.parse(
        domain.XMLDesc(0), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    )
    return info.repin or (now.floats(info.cpuset, online) and not info.placed)
