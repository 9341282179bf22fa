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

"""Putting domains back: after a crash, on ``--restore``, on opt-out."""

import dataclasses
import enum
import logging
import pathlib
import xml.etree.ElementTree as ElementTree
from typing import Any

import libvirt

from nova_vhpc import cgroup
from nova_vhpc.agent import (
    arrival,
    cpus,
    cputune,
    cputune_restore,
    domain_xml,
    journal,
    mark,
    migration,
    ours,
    processes,
    weights,
)
from nova_vhpc.agent.actuators import kernel_slice
from nova_vhpc.control import defaults, model

LOG = logging.getLogger(__name__)

DEFAULT_PERIOD_US = 100_000


class Outcome(enum.StrEnum):
    """What became of one domain."""

    NOTHING = 'nothing of ours in it'
    RESTORED = 'restored'
    FROM_DEFINITION = 'set to its persistent definition'
    FROM_DEFINITION_NEWER = 'set to its definition; newer journal kept'


class RestoreError(Exception):
    """A domain is not what it was; its journal is kept."""


class Restorer:
    """Puts domains back from the journal, the mark or their definition.

    :param records: this host's journal.
    :param host: reads the QEMU processes.
    """

    def __init__(
        self, records: journal.Journal, host: processes.Processes
    ) -> None:
        self.journal = records
        self.host = host
        # VMs with a newer agent's record that were set to their definition:
        # once is enough, what comes later is somebody else's.
        self._left_alone: dict[str, processes.Identity] = {}

    def clean(self, domain: Any) -> Outcome:
        """Put one running domain back, if we have written to it.

        :raises RestoreError: it is not exactly what it was.
        :raises journal.Unreadable: it is not known whether we have.
        :raises libvirt.libvirtError: a call was refused.
        """
        uuid = domain.UUIDString()
        record: journal.Record | None = None
        unreadable: journal.JournalError | None = None
        try:
            record = self.journal.load(uuid)
        except journal.JournalError as error:
            unreadable = error
        identity = self.host.identity(uuid, domain.ID())
        if self._left_alone.get(uuid) == identity:
            return Outcome.FROM_DEFINITION_NEWER
        earlier: journal.Record | None = None
        if record is not None and not record.identity.same_run(identity):
            # Restarted since: the settings were made anew from the
            # persistent definition, which we never write.
            earlier, record = record, None
        if record is not None:
            # First: libvirt takes no writes while a VM is sent away, and
            # waits for one that hangs, or that a window has starved.
            weights.give_back_recorded(domain, record, self.host)
        copy: journal.Record | None = None
        torn_copy: journal.JournalError | None = None
        if record is None:
            try:
                copy = mark.get(domain)
            except journal.JournalError as error:
                torn_copy = error
        marked = copy is not None or torn_copy is not None
        if not marked and isinstance(unreadable, journal.Unreadable):
            # Nothing says that we ever wrote to it: its settings are its own.
            raise unreadable
        if (
            copy is not None
            and copy.settled
            and copy.identity.same_run(identity)
            and unreadable is None
        ):
            # It has not migrated yet, and is as it was.
            if not migration.leaves(domain):
                mark.remove(domain)
            return Outcome.NOTHING
        if earlier is not None:
            # An agent may have been killed before it looked what it met.
            astray = not marked and take_back(
                domain, earlier.written or {}, self.host.cgroup
            )
            self._drop(uuid)
            if astray:
                return Outcome.RESTORED
        original, released = self._original(domain, record, copy, identity)
        outcome = Outcome.RESTORED
        unknown = unreadable or torn_copy
        if original is None and unknown is not None:
            if not domain.isPersistent():
                # What it would be started from is then what is in force.
                raise RestoreError(
                    f'{unknown}; nothing tells what it was before, as it is '
                    'transient: it has no definition'
                )
            original = from_definition(domain, self.host.cgroup)
            outcome = Outcome.FROM_DEFINITION
        if original is None:
            return Outcome.NOTHING
        source = record or copy
        refused: OSError | None = None
        if source is None or source.sliced:
            # Without a record it is not known; the reset harms nobody.
            try:
                kernel_slice.reset(
                    self.host,
                    identity.pid,
                    # Online, unlike those that have pins.
                    domain_xml.parse(domain.XMLDesc(0)).vcpus,
                )
            except OSError as error:
                # All else is put back first.
                refused = error
        if record is not None:
            # The copy is not kept up to date with what we write.
            released |= _theirs(domain, record)
        weighed = (
            record is None
            or record.written is None
            or cputune.SHARES in record.written
        )
        left = cputune_restore.restore(domain, original, released, weighed)
        if left:
            raise RestoreError('; '.join(left))
        if refused is not None:
            raise refused
        mark.remove(domain)
        if isinstance(unreadable, journal.NewerVersion):
            LOG.warning('%s', unreadable)
            self._left_alone[uuid] = identity
            return Outcome.FROM_DEFINITION_NEWER
        if unreadable is not None:
            aside = self.journal.set_aside(uuid)
            LOG.warning(
                '%s; %s, the record is kept as %s', unreadable, outcome, aside
            )
        else:
            if torn_copy is not None:
                LOG.warning('%s; %s', torn_copy, outcome)
            self._drop(uuid)
        return outcome

    def forget(self, uuid: str) -> None:
        """A domain has stopped: its record has no more use."""
        try:
            self.journal.load(uuid)
        except (journal.NewerVersion, journal.Unreadable):
            return
        except journal.JournalError as error:
            aside = self.journal.set_aside(uuid)
            LOG.warning('%s; the VM is gone, kept as %s', error, aside)
        else:
            self._drop(uuid)

    def _drop(self, uuid: str) -> None:
        try:
            self.journal.remove(uuid)
        except journal.JournalError as error:
            # A leftover record does no harm: the next run of the domain
            # has another identity, and this one is as the record says.
            LOG.warning('%s', error)

    @staticmethod
    def _original(
        domain: Any,
        record: journal.Record | None,
        copy: journal.Record | None,
        identity: processes.Identity,
    ) -> tuple[cputune.Cputune | None, frozenset[str]]:
        if record is not None:
            return _with_cpus_that_came(domain, record), record.released
        if copy is None:
            return None, frozenset()
        if copy.identity.same_run(identity):
            return _with_cpus_that_came(domain, copy), copy.released
        # Came from another host, or back from disk: the other settings are
        # the VM's own, the CPUs are this host's.
        host_cpus = len(domain.emulatorPinInfo(cputune.LIVE))
        # Nova has written its own cpuset for this host into the XML.
        cpuset = domain_xml.parse(domain.XMLDesc(0)).cpuset
        here = frozenset(range(host_cpus))
        pins = arrival.pins(copy, cpuset, here)
        return (
            dataclasses.replace(
                copy.original,
                vcpupins=tuple(pin or cpuset or here for pin in pins),
                emulatorpin=frozenset(),
                host_cpus=host_cpus,
            ),
            arrival.not_ours(copy),
        )


def _with_cpus_that_came(
    domain: Any, record: journal.Record
) -> cputune.Cputune:
    """What a VM was before us, had the host's CPUs been those of today.

    One that nobody pinned could use those, too, that were switched on while
    no agent looked; :mod:`.switched_cpus` sees to the others.
    """
    original = record.original
    if not record.floats or domain_xml.parse(domain.XMLDesc(0)).cpuset:
        return original
    online = cputune.online(domain)
    return dataclasses.replace(
        original,
        vcpupins=tuple(known | online for known in original.vcpupins),
        host_cpus=max(original.host_cpus, *(cpu + 1 for cpu in online)),
    )


def take_back(
    domain: Any, written: ours.Written, cgroup_root: pathlib.Path
) -> bool:
    """Put back what came into a run that it was not meant for.

    :param written: to an earlier run of the domain.
    :returns: whether there was anything.
    :raises RestoreError: it is not exactly what it was.
    :raises libvirt.libvirtError: it cannot be told, or was refused.
    """
    if not written:
        return False
    definition = from_definition(domain, cgroup_root)
    names = frozenset(cputune.names(definition))
    astray = ours.found(written, definition, cputune.read(domain))
    if not astray:
        return False
    left = cputune_restore.restore(domain, definition, names - astray)
    if left:
        raise RestoreError('; '.join(left))
    LOG.info(
        'VM %s: restarted while it was written; taken back: %s',
        domain.name(),
        ', '.join(sorted(astray)),
    )
    return True


def _theirs(domain: Any, record: journal.Record) -> frozenset[str]:
    """What somebody else has set while no agent looked."""
    found = (
        ours.theirs(record.written, record.original, cputune.read(domain))
        - record.released
    )
    if any(name.startswith(cputune.PINS) for name in found):
        found -= {cputune.pin_name(vcpu) for vcpu in cputune.unpinned(domain)}
    if found:
        LOG.warning(
            'VM %s: somebody changed %s while no agent ran; left so',
            record.name,
            ', '.join(sorted(found)),
        )
    return found


def from_definition(domain: Any, cgroup_root: pathlib.Path) -> cputune.Cputune:
    """What a domain would be set to if it were started anew.

    The last resort when the journal is torn and there is no mark: Nova and
    we never change the cputune of a persistent definition of a VM that
    runs.

    :raises libvirt.libvirtError: it cannot be told.
    """
    now = cputune.read(domain)
    root = ElementTree.fromstring(
        domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    )
    v2 = cgroup.cpu_is_v2(cgroup_root)
    shares = defaults.SHARES_V2 if v2 else defaults.SHARES_V1
    unset = {
        cputune.PERIOD: ('period', DEFAULT_PERIOD_US),
        cputune.QUOTA: ('quota', -1),
        cputune.SHARES: ('shares', shares),
    }
    parameters = dict(now.parameters)
    for name, (element, default) in unset.items():
        value = int(root.findtext(f'./cputune/{element}') or default)
        if name == cputune.QUOTA and cputune.is_unlimited(value):
            # Keep the way this host reads "unlimited".
            old = parameters.get(name, value)
            value = old if cputune.is_unlimited(old) else model.UNLIMITED
        parameters[name] = value
    info = domain_xml.parse(ElementTree.tostring(root, 'unicode'))
    pin = info.cpuset or frozenset(range(now.host_cpus))
    pins = [pin] * len(now.vcpupins)
    for pinned in root.findall('./cputune/vcpupin'):
        vcpu = int(pinned.get('vcpu', '-1'))
        if 0 <= vcpu < len(pins):
            pins[vcpu] = cpus.parse_cpu_set(pinned.get('cpuset', ''))
    return dataclasses.replace(
        now, parameters=parameters, vcpupins=tuple(pins)
    )
