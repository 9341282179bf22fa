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

from nova_vhpc.agent.external_changes import policy
from nova_vhpc.agent.guests import guest, registry, write_permission
from nova_vhpc.agent.journal import domain_metadata, store
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.lifecycle import after_crash
from nova_vhpc.agent.probes import base, sampler
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)


def sync_every(info: domain_xml.DomainInfo, others: int) -> int:
    """In how many ticks a VM's synchronisation latency is read once.

    :param others: for all but parallel VMs, whose slices follow it.
    """
    return 1 if info.specs.workload == 'parallel' else others


class Adoption:
    """Makes a :class:`guest.Guest` of a domain.

    :param options: ``[vhpc_agent]``.
    :param vms: where it is entered.
    :param allowed: what speaks against a write.
    :param records: the journal.
    :param left: puts back what a crash left.
    :param host: reads the QEMU processes.
    :param probes: opens the VMs' probes.
    :param changes: knows the CPUs that are online.
    :param sliced: vCPU threads may have slices of their own.
    """

    def __init__(
        self,
        options: Any,
        vms: registry.GuestRegistry,
        allowed: write_permission.WritePermission,
        records: store.Journal,
        left: after_crash.CrashRecovery,
        host: qemu_process.Processes,
        probes: sampler.Sampler,
        changes: policy.ExternalChangePolicy,
        sliced: bool,
    ) -> None:
        self._options = options
        self._roster = vms
        self._gate = allowed
        self._journal = records
        self._leftovers = left
        self._host = host
        self._probes = probes
        self._changes = changes
        self._sliced = sliced

    def adopt(
        self, domain: Any, info: domain_xml.DomainInfo, seen: registry.Seen
    ) -> None:
        """Take a VM in.

        :param seen: the run of the domain, and the hash of its XML.
        :raises restore.RestoreError: what a crash left is still in it.
        """
        if info.uuid in self._roster.guests:
            # An earlier run of it; a refusal is to be told but once.
            self._roster.dismiss(info.uuid)
        copy = before = None
        with contextlib.suppress(store.JournalError):
            copy = domain_metadata.get(domain)
        with contextlib.suppress(store.JournalError):
            before = self._journal.load(info.uuid)
        identity = self._host.identity(info.uuid, domain.ID())
        if before is not None and not before.identity.same_run(identity):
            # Of another run, maybe of another flavor.
            before = None
        outcome = self._leftovers.clean(domain, info.name)
        if outcome is recovery.Outcome.FROM_DEFINITION_NEWER:
            self._roster.refuse(
                info.uuid, "a newer agent's journal stands in the way"
            )
            return
        if outcome is not recovery.Outcome.NOTHING:
            LOG.info('VM %s: %s', info.name, outcome)
        known = copy or before
        now = cputune.read(domain)
        online = self._changes.switched.online()
        repin = known.repin if known else _repin(domain, now, online)
        reader, tids = self.open(info, identity.pid)
        target = guest.Guest(
            info=info,
            domain=domain,
            domain_id=seen[0],
            identity=identity,
            original=now,
            expected=now,
            reader=reader,
            tids=tids,
            xml_hash=seen[1],
            confined_to=self._host.confined_to(identity.pid),
            online=online,
            repin=repin and not info.dedicated,
            sliced=self._sliced,
        )
        target.allow(now.cpus)
        self._hold(target)
        if self._gate.ending.is_set():
            return
        self._roster.add(target)
        # Whoever opened or closed the gate meanwhile did not see this VM.
        self._hold(target)
        # Of an earlier run the player may know shares that are not in force.
        self._changes.on_shares(info.uuid)
        LOG.info(
            'VM %s: managed as %s%s',
            info.name,
            info.specs.workload,
            '' if target.repin else ', never pinned',
        )

    def _hold(self, target: guest.Guest) -> None:
        """Take over what speaks against a write from the gate."""
        for why, holds in (
            (guest.Hold.PAUSED, self._gate.paused),
            (guest.Hold.RESTORED, target.uuid in self._gate.restored),
            (guest.Hold.LEAVING, target.uuid in self._gate.leaving),
        ):
            if holds:
                target.holds.add(why)
            else:
                target.holds.discard(why)

    def open(
        self, info: domain_xml.DomainInfo, pid: int
    ) -> tuple[sampler.VmReader, tuple[int, ...]]:
        """Open a VM's probes.

        :param pid: of QEMU; 0 if it was not found.
        :returns: its reader, and the thread ids of its vCPUs.
        """
        tids = self._host.vcpu_threads(pid, info.vcpus) if pid else ()
        reader = self._probes.attach(
            base.Target(
                info.uuid,
                info.name,
                pid,
                tids,
                self._host.vcpu_cgroups(pid, info.vcpus) if pid else (),
                self._host.block_cgroup(pid) if pid else None,
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
