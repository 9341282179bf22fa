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

"""One opted-in VM, as the agent keeps it between ticks."""

import dataclasses
import enum
import threading
from typing import Any, NamedTuple

from nova_vhpc.agent.guests import write_failures
from nova_vhpc.agent.guests.event_history import EventHistory
from nova_vhpc.agent.journal import store, written_values
from nova_vhpc.agent.libvirt import cgroup_weight, cputune, domain_xml
from nova_vhpc.agent.probes import sampler
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process

NO_TUNE = model.CpuTune()


class Hold(enum.StrEnum):
    """Why a VM is not written now; several may hold at a time."""

    PAUSED = 'paused'
    RESTORED = 'restored'
    LEAVING = 'leaving'
    MIGRATING = 'migrating'
    OPTED_OUT = 'opted out'
    STOPPING = 'stopping'
    EXTERNAL = 'external'


class Traits(NamedTuple):
    """What a guest's XML and flavor say, in the controller's terms.

    :ivar time_slice_us: time slice that the flavor asks for, in microseconds.
    """

    vcpus: int = 1
    workload: model.Workload = model.Workload.GENERAL
    paradigm: model.Paradigm = model.Paradigm.MPI
    io_pool: model.IoPoolUse = model.IoPoolUse.AUTO
    time_slice_us: int | None = None


NO_TRAITS = Traits()


@dataclasses.dataclass(slots=True, eq=False)
class Guest:
    """State of one domain. Calls about it run one after the other.

    :ivar domain: libvirt's object, of the present connection.
    :ivar original: its cputune before we first wrote to it.
    :ivar online: CPUs that the host had online, as far as ``original`` knows.
    :ivar expected: what it is as far as we know: read or written.
    :ivar in_force: the same, in the controller's terms.
    :ivar allowed_cpus: that we may pin it to.
    :ivar confined_to: CPUs that its control group leaves to it; None for all.
    :ivar external: managed values that were changed externally; if there is
        any, the guest is handed back.
    :ivar overwritten: those of them that a write of the agent has replaced;
        ``original`` then holds the external value.
    :ivar journalled: there is a record on the disk; we may write.
    :ivar marked: the copy of the record is in the domain's XML.
    :ivar settled: it still is, for another host, though all is put back.
    :ivar holds: why nothing is written now; each reason ends by itself.
    :ivar uncertain: a write failed halfway; what is in force is ours, but
        not known.
    :ivar pending: what is still to be written.
    :ivar slice_us: the time slice that it is to bring about.
    :ivar sliced: vCPU threads may have slices of their own.
    :ivar slices: those that we gave them, by thread id (us). Another VM's
        threads may have the same ids later.
    :ivar written: the values that the journal says we may have written.
    :ivar event_history: what events have to tell of what we write.
    :ivar failures: of writes to it.
    :ivar weight: where windows write ``cpu_shares``; None before the first.
    :ivar free_weights: those in the journal that windows may write there
        without ``lock``, however long libvirt holds it; only who holds it
        grants them.
    :ivar unweighed: its weight was put back past libvirt.
    :ivar lock: held while written or restored; windows write beside the
        workers.
    :ivar weighing: held while ``expected`` is changed, and while a window
        writes without ``lock``; never during a call to libvirt.
    """

    info: domain_xml.DomainInfo
    domain: Any
    domain_id: int
    identity: qemu_process.Identity
    original: cputune.Cputune
    expected: cputune.Cputune
    reader: sampler.VmReader
    tids: tuple[int, ...] = ()
    xml_hash: int = 0
    in_force: model.CpuTune = NO_TUNE
    original_tune: model.CpuTune = NO_TUNE
    allowed_cpus: frozenset[int] | None = None
    confined_to: frozenset[int] | None = None
    online: frozenset[int] = frozenset()
    repin: bool = True
    external: frozenset[str] = frozenset()
    overwritten: frozenset[str] = frozenset()
    journalled: bool = False
    marked: bool = False
    settled: bool = False
    holds: set[Hold] = dataclasses.field(default_factory=set)
    pending: model.CpuTune | None = None
    slice_us: int | None = None
    queued: bool = False
    uncertain: bool = False
    sliced: bool = False
    slices: dict[int, int] = dataclasses.field(default_factory=dict)
    written: written_values.WrittenValues = dataclasses.field(
        default_factory=dict
    )
    event_history: EventHistory = dataclasses.field(
        default_factory=EventHistory
    )
    failures: write_failures.Failures = dataclasses.field(
        default_factory=write_failures.Failures
    )
    weight: cgroup_weight.WeightFile | None = None
    free_weights: frozenset[int] = frozenset()
    unweighed: bool = False
    writes: int = 0
    moves: int = 0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    weighing: Any = dataclasses.field(default_factory=threading.RLock)

    traits: Traits = NO_TRAITS

    def __post_init__(self) -> None:
        self.set_info(self.info)
        self.set_expected(self.expected)
        self.original_tune = self.in_force

    def set_info(self, info: domain_xml.DomainInfo) -> None:
        """Take what the XML says."""
        self.info = info
        specs = info.specs
        self.traits = Traits(
            info.vcpus,
            model.Workload(specs.workload),
            model.Paradigm(specs.paradigm),
            model.IoPoolUse(specs.io_pool),
            specs.time_slice_us,
        )

    @property
    def uuid(self) -> str:
        """Of the domain and of the Nova server."""
        return self.info.uuid

    @property
    def name(self) -> str:
        """libvirt's name of the domain."""
        return self.info.name

    @property
    def hands_off(self) -> str:
        """Why nothing is written now, for people; empty if it may be."""
        return ', '.join(sorted(self.holds))

    @property
    def free_to_write(self) -> bool:
        """Whether nothing speaks against a write now."""
        return not self.holds

    def allow(self, cpus: frozenset[int]) -> None:
        """Take what its own pins allow for what it may be pinned to.

        Less what its control group keeps from it.
        """
        within = cpus & self.confined_to if self.confined_to else cpus
        self.allowed_cpus = within or cpus

    def set_expected(self, now: cputune.Cputune) -> None:
        """Take what was read for what is in force."""
        with self.weighing:
            self.expected = now
            self.in_force = now.tune(self.info.vcpus)

    def note_written(
        self,
        parameters: dict[str, int] | None = None,
        pins: dict[int, frozenset[int]] | None = None,
    ) -> None:
        """Take what was written for what is in force."""
        with self.weighing:
            vcpupins = list(self.expected.vcpupins)
            for vcpu, cpus in (pins or {}).items():
                if vcpu < len(vcpupins):
                    vcpupins[vcpu] = cpus
            if parameters and cputune.SHARES in parameters:
                self.event_history.last[cputune.SHARES] = parameters[
                    cputune.SHARES
                ]
            self.set_expected(
                dataclasses.replace(
                    self.expected,
                    parameters={
                        **self.expected.parameters,
                        **(parameters or {}),
                    },
                    vcpupins=tuple(vcpupins),
                )
            )

    def stop_free_weights(self) -> None:
        """No window writes from now on without the lock, which is held.

        Until one has written with it.
        """
        with self.weighing:
            self.free_weights = frozenset()

    @property
    def weighs_by_file(self) -> bool:
        """Whether its weight is known to stand in a file of this run."""
        return self.weight is not None and self.weight.proven

    def may_be_ours(self, shares: int | None) -> bool:
        """Whether ``cpu_shares`` that were read need be nobody else's.

        What windows write into the file itself systemd does not know of: at
        a daemon-reload it writes what it knows, as the VM began.
        """
        return shares in self.event_history.written_shares or (
            self.weighs_by_file
            and shares == self.original.parameters.get(cputune.SHARES)
        )

    def succeeded(self) -> None:
        """A write went through."""
        self.writes += 1
        self.failures.end()

    @property
    def unmanaged_fields(self) -> frozenset[str]:
        """Values in force that were changed externally: never written."""
        return self.external - self.overwritten

    def record(self) -> store.JournalRecord:
        """For the journal."""
        return store.JournalRecord(
            self.uuid,
            self.name,
            self.identity,
            self.original,
            self.repin,
            self.unmanaged_fields,
            self.sliced,
            self.written,
            self.floats,
            external=self.external,
        )

    @property
    def floats(self) -> bool:
        """Whether it could use all CPUs that Nova gives to guests."""
        return not self.info.placed and self.original.floats(
            self.info.cpuset, self.online
        )

    @property
    def tells_another_host(self) -> bool:
        """Whether its XML is to say that it was ours, though put back.

        It may migrate next, and libvirt has no call to take out a pin.
        """
        return self.holds.isdisjoint(
            (Hold.STOPPING, Hold.OPTED_OUT)
        ) and not self.holds.isdisjoint((Hold.LEAVING, Hold.RESTORED))

    @property
    def has_our_pins(self) -> bool:
        """Whether its XML has pins of our making for good.

        Of this agent or of another one, they mean nothing once put back. All
        others are somebody's choice, and go along as they are.
        """
        return self.floats and (
            self.info.pins
            or any(name.startswith(cputune.PINS) for name in self.written)
        )

    def ours_to_write(
        self, tune: model.CpuTune, off: frozenset[int] = frozenset()
    ) -> model.CpuTune | None:
        """Leave out what is not ours to set, and what is so already.

        :param off: CPUs of the host that are switched off: who could use all
            before us is to have those that are left, and the kernel takes no
            pins to others (cgroup v1).
        """
        now = self.in_force
        period, quota = tune.period_us, tune.quota_us
        shares, pins = tune.shares, tune.vcpu_pins
        if not self.repin:
            pins = None
        if pins and off:
            pins = tuple(pin - off or pin for pin in pins)
        if period == now.period_us and quota == now.quota_us:
            period = quota = None
        if shares == now.shares:
            shares = None
        if pins == now.vcpu_pins:
            pins = None
        if period is None and quota is None and shares is None and not pins:
            return None
        return model.CpuTune(period, quota, shares, pins)
