# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A managed guest: what the agent knows about one domain."""

import dataclasses
import enum
import threading
import time
from typing import Any, NamedTuple

from nova_vhpc.agent.guests.event_history import EventHistory
from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cgroup_weight, cputune, domain_xml
from nova_vhpc.agent.probes import sampler
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process


class Hold(enum.StrEnum):
    """Why a guest is not written now; several may apply at a time."""

    PAUSED = 'paused'
    RESTORED = 'restored'
    LEAVING = 'leaving'
    MIGRATING = 'migrating'
    OPTED_OUT = 'opted out'
    STOPPING = 'stopping'
    EXTERNAL = 'external'
    VCPU_GAP = 'vcpu gap'


class Traits(NamedTuple):
    """What a guest's XML and flavor say, in the controller's terms.

    :ivar time_slice_us: time slice that the flavor asks for, in microseconds.
    """

    vcpus: int
    workload: model.Workload
    paradigm: model.Paradigm
    io_pool: model.IoPoolUse
    time_slice_us: int | None


def _first_sequence() -> int:
    """Return a number above those of earlier agents' records."""
    return time.time_ns() // 1000


LONGEST_QUARANTINE = 10
"""Longest quarantine, as a multiple of ``quarantine_seconds``."""


@dataclasses.dataclass(slots=True, eq=False)
class Failures:
    """Failed writes to one guest.

    :ivar count: number of failures in all.
    :ivar in_row: number of failures since the last write that succeeded.
    :ivar quarantines: number of quarantines since that write.
    :ivar quarantined_until: end of the quarantine, in seconds of the
        monotonic clock.
    :ivar problem: text of the last failure; empty after a success.
    """

    count: int = 0
    in_row: int = 0
    quarantines: int = 0
    quarantined_until: float = 0.0
    problem: str = ''

    @property
    def quarantined(self) -> bool:
        """Whether the guest is not written for a while."""
        return time.monotonic() < self.quarantined_until

    def add(self, problem: str, limit: int, seconds: float) -> bool:
        """Count a failure.

        :param limit: number of failures in a row that cause a quarantine.
        :param seconds: length of the first quarantine, in seconds; each
            further one is twice as long as the one before.
        :returns: whether a quarantine has begun.
        """
        self.count += 1
        self.in_row += 1
        self.problem = problem
        if self.in_row < limit:
            return False
        factor = min(2**self.quarantines, LONGEST_QUARANTINE)
        self.quarantined_until = time.monotonic() + seconds * factor
        self.quarantines += 1
        return True

    def end(self) -> None:
        """End the row of failures after a write that succeeded."""
        self.in_row = 0
        self.quarantines = 0
        self.quarantined_until = 0.0
        self.problem = ''


@dataclasses.dataclass(slots=True, eq=False)
class Guest:
    """State of one run of a domain that the agent manages.

    :ivar domain: libvirt's object, of the present connection.
    :ivar domain_id: libvirt's ID of this run.
    :ivar original: the cputune before the agent's first write.
    :ivar expected: the cputune that was last read or written.
    :ivar tids: thread IDs of the vCPUs.
    :ivar xml_hash: hash of the live XML that ``info`` was parsed from.
    :ivar in_force: ``expected``, in the controller's terms.
    :ivar original_tune: ``original``, in the controller's terms.
    :ivar allowed_cpus: CPUs that the agent may pin the guest to.
    :ivar confined_to: CPUs of the guest's control group; None for all.
    :ivar online: CPUs that were online when the pins in ``original`` were
        read.
    :ivar repin: whether the agent may pin the guest's vCPUs.
    :ivar external: managed values that were changed externally; if there is
        any, the guest is handed back.
    :ivar overwritten: external values that a write of the agent has replaced;
        ``original`` then holds them, so that the restore writes them again.
    :ivar journalled: the journal has a record with the original settings, so
        that the guest may have values of the agent.
    :ivar has_metadata_copy: the live XML has a copy of that record.
    :ivar copy_for_destination: the original settings are restored, and the
        live XML has a copy for the destination host of a migration.
    :ivar holds: why the guest is not written now.
    :ivar pending: cputune that waits to be written.
    :ivar queued: a call that writes ``pending`` is in the executor.
    :ivar uncertain: a write failed, and may have been applied in part; values
        that differ from ``expected`` are then not taken for external changes.
    :ivar written: values that the agent may have written, as in the journal.
    :ivar event_history: values that the agent wrote, and external ones that
        events reported.
    :ivar weight_file: where gang windows write ``cpu_shares``; None before
        the first window.
    :ivar lock_free_weights: ``cpu_shares`` that windows may write to that
        file without holding ``lock``, which libvirt may keep for long. All
        are in the journal. Weights are added only under ``lock``.
    :ivar weight_restored_by_file: the original ``cpu_shares`` were written to
        the control group only, so that libvirt's XML may have another value.
    :ivar writes: number of writes.
    :ivar moves: number of writes that moved vCPUs to other CPUs.
    :ivar window_s: time for which gang windows favoured the guest, in seconds.
    :ivar lock: held while the guest is checked, written or restored, also
        during calls to libvirt. Windows write in threads beside the executor.
    :ivar state_lock: guards ``expected`` and ``lock_free_weights``, and is
        held while a window writes without ``lock``. Never held during a call
        to libvirt.
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
    traits: Traits = dataclasses.field(init=False)
    in_force: model.CpuTune = dataclasses.field(init=False)
    original_tune: model.CpuTune = dataclasses.field(init=False)
    allowed_cpus: frozenset[int] | None = None
    confined_to: frozenset[int] | None = None
    online: frozenset[int] = frozenset()
    repin: bool = True
    external: frozenset[str] = frozenset()
    overwritten: frozenset[str] = frozenset()
    journalled: bool = False
    has_metadata_copy: bool = False
    copy_for_destination: bool = False
    holds: set[Hold] = dataclasses.field(default_factory=set)
    pending: model.CpuTune | None = None
    queued: bool = False
    uncertain: bool = False
    written: written_values.WrittenValues = dataclasses.field(
        default_factory=dict
    )
    event_history: EventHistory = dataclasses.field(
        default_factory=EventHistory
    )
    failures: Failures = dataclasses.field(default_factory=Failures)
    weight_file: cgroup_weight.WeightFile | None = None
    lock_free_weights: frozenset[int] = frozenset()
    weight_restored_by_file: bool = False
    writes: int = 0
    moves: int = 0
    window_s: float = 0.0
    sequence: int = dataclasses.field(default_factory=_first_sequence)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    state_lock: Any = dataclasses.field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.set_info(self.info)
        self.set_expected(self.expected)
        self.set_original(self.original)

    def set_info(self, info: domain_xml.DomainInfo) -> None:
        """Replace what the XML says, and the traits that follow from it."""
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
        """UUID of the domain, and of the Nova server."""
        return self.info.uuid

    @property
    def name(self) -> str:
        """libvirt's name of the domain."""
        return self.info.name

    @property
    def hands_off(self) -> str:
        """Why the guest is not written now, as text; empty if it may be."""
        return ', '.join(sorted(self.holds))

    @property
    def free_to_write(self) -> bool:
        """Whether no hold forbids a write now."""
        return not self.holds

    def set_allowed_cpus(self, cpus: frozenset[int]) -> None:
        """Allow the agent to pin the guest to the CPUs of its original pins.

        CPUs that the guest's control group lacks are left out, unless none
        would be left.
        """
        within = cpus & self.confined_to if self.confined_to else cpus
        self.allowed_cpus = within or cpus

    def set_original(self, original: cputune.Cputune) -> None:
        """Replace the original settings."""
        self.original = original
        self.original_tune = original.tune(self.info.vcpus)

    def set_expected(self, now: cputune.Cputune) -> None:
        """Replace the expected cputune by one that was read."""
        with self.state_lock:
            self.expected = now
            self.in_force = now.tune(self.info.vcpus)

    def note_written(
        self,
        parameters: dict[str, int] | None = None,
        pins: dict[int, frozenset[int]] | None = None,
    ) -> None:
        """Add values that were written to the expected cputune."""
        with self.state_lock:
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

    def forbid_lock_free_weights(self) -> None:
        """Make windows wait for ``lock``, which the caller holds.

        They wait until one of them has written while it held ``lock``.
        """
        with self.state_lock:
            self.lock_free_weights = frozenset()

    @property
    def uses_weight_file(self) -> bool:
        """Whether libvirt is known to read the weight from ``weight_file``."""
        return self.weight_file is not None and self.weight_file.proven

    def may_be_agents_shares(self, shares: int | None) -> bool:
        """Return whether ``cpu_shares`` that were read may be the agent's.

        systemd does not know weights that windows wrote to the file: at a
        ``daemon-reload`` it writes the weight that the domain was started
        with.
        """
        return shares in self.event_history.written_shares or (
            self.uses_weight_file
            and shares == self.original.parameters.get(cputune.SHARES)
        )

    def succeeded(self) -> None:
        """Count a write, and end a row of failures."""
        self.writes += 1
        self.failures.end()

    @property
    def unmanaged_fields(self) -> frozenset[str]:
        """Values in force that were changed externally: never written."""
        return self.external - self.overwritten

    def record(self) -> JournalRecord:
        """Return the guest's next journal record."""
        self.sequence += 1
        return JournalRecord(
            self.uuid,
            self.name,
            self.identity,
            self.original,
            self.repin,
            self.unmanaged_fields,
            self.written,
            self.is_floating,
            external=self.external,
            sequence=self.sequence,
        )

    @property
    def is_floating(self) -> bool:
        """Whether all CPUs that Nova gives to guests were allowed originally.

        Nova calls vCPUs of such guests floating.
        """
        return not self.info.placed and self.original.is_floating(
            self.info.cpuset, self.online
        )

    @property
    def needs_copy_on_migration(self) -> bool:
        """Whether the guest, once restored, may migrate next.

        libvirt cannot take a ``<vcpupin>`` out of the live XML. The metadata
        copy tells the destination host that the pins there are the agent's.
        """
        return self.holds.isdisjoint(
            (Hold.STOPPING, Hold.OPTED_OUT)
        ) and not self.holds.isdisjoint((Hold.LEAVING, Hold.RESTORED))

    @property
    def keeps_agent_pins(self) -> bool:
        """Whether the live XML has pins that only agents have made.

        Pins of a guest that did not float were chosen by Nova or by an
        operator, and migrate as they are.
        """
        return self.is_floating and (
            self.info.pins
            or any(name.startswith(cputune.PINS) for name in self.written)
        )

    def values_to_write(
        self, tune: model.CpuTune, offline: frozenset[int] = frozenset()
    ) -> model.CpuTune | None:
        """Return the planned values that are not in force yet.

        Pins of a guest that must not be pinned are left out.

        :param tune: cputune that was planned.
        :param offline: host CPUs that are switched off. Pins to all CPUs are
            compared without them, because the kernel (cgroup v1) takes no
            pins to them.
        :returns: None if nothing is to be written.
        """
        in_force = self.in_force
        period, quota = tune.period_us, tune.quota_us
        shares, pins = tune.shares, tune.vcpu_pins
        if not self.repin:
            pins = None
        if pins and offline:
            pins = tuple(pin - offline or pin for pin in pins)
        if period == in_force.period_us and quota == in_force.quota_us:
            period = quota = None
        if shares == in_force.shares:
            shares = None
        if pins == in_force.vcpu_pins:
            pins = None
        if period is None and quota is None and shares is None and not pins:
            return None
        return model.CpuTune(period, quota, shares, pins)
