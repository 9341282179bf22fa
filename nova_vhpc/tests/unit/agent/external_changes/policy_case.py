# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A guest in an in-memory libvirt, and the policy for external changes."""

import tempfile
import types
from collections.abc import Mapping
from typing import Any

from oslotest import base

from nova_vhpc.agent import context
from nova_vhpc.agent.external_changes import (
    cpu_hotplug,
    misdirected_writes,
    policy,
)
from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import restore_guest
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.guests import test_guest
from nova_vhpc.tests.unit.agent.libvirt import test_cputune

NUMBERS = (cputune.PERIOD, cputune.QUOTA, cputune.SHARES)
PINS = (cputune.pin_name(0), cputune.pin_name(1))


class Domain(test_cputune.Cgroup):
    """A domain whose metadata can be written, too."""

    def __init__(self) -> None:
        super().__init__(100_000, 50_000, 1.0)
        self.uuid = 'u'
        self.cpuset: frozenset[int] | None = None
        self.has_metadata_copy = False
        self.pinned: set[int] = set()
        self.meanwhile = lambda: None

    def put(self, values: Mapping[str, Any]) -> None:
        """Set values by name, as anybody does."""
        for name, value in values.items():
            if name in NUMBERS:
                self.values[name] = value
            else:
                vcpu = PINS.index(name)
                self.pins += [()] * (vcpu + 1 - len(self.pins))
                self.pins[vcpu] = tuple(
                    cpu in value for cpu in range(len(self.online))
                )
                self.pinned.add(vcpu)

    def get(self) -> dict[str, Any]:
        """Return all values by name."""
        pins = zip(PINS, map(cputune.pin_cpus, self.pins), strict=False)
        return {**self.values, **dict(pins)}

    def ID(self) -> int:
        return 1

    def XMLDesc(self, flags: int) -> str:
        """Keep the element of a vCPU that was pinned once, as libvirt does."""
        pins = [
            () if vcpu in self.pinned else pin
            for vcpu, pin in enumerate(self.pins)
        ]
        elements = fake_libvirt.vcpupins(pins, self.online)
        return f'<domain><vcpu>2</vcpu>{elements}</domain>'

    def emulatorPinInfo(self, flags: int) -> tuple[bool, ...]:
        return (True,) * len(self.online)

    def pinVcpuFlags(self, vcpu: int, pin: Any, flags: int) -> None:
        super().pinVcpuFlags(vcpu, pin, flags)
        self.pinned.add(vcpu)

    def setMetadata(self, kind: int, text: str | None, *rest: Any) -> None:
        self.has_metadata_copy = text is not None
        self.meanwhile()


class Processes:
    """Knows the CPUs of a domain's control group."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def cpuset(self, pid: int) -> frozenset[int] | None:
        return self.domain.cpuset

    def find(self, uuid: str, domain_id: int | None = None) -> int:
        """Find no process: the domain is in memory."""
        return 0


class PolicyTestCase(base.BaseTestCase):
    """Has a guest in an in-memory libvirt, a journal and the policy."""

    def setUp(self) -> None:
        super().setUp()
        self.journal = store.Journal(tempfile.mkdtemp())
        self.journal.prepare()
        self.domain = Domain()
        self.forgotten_shares: list[str] = []

    def make(self, **changes: Any) -> Guest:
        guest = test_guest.make(**changes)
        guest.domain = self.domain
        guest.set_expected(cputune.read(self.domain))
        return guest

    def online(self) -> frozenset[int]:
        return cputune.pin_cpus(self.domain.online)

    def changes(self, choice: str = 'respect') -> policy.ExternalChangePolicy:
        connection = fake_libvirt.Link(self.domain)
        processes = Processes(self.domain)
        self.context = context.HostContext(
            None,
            registry.WritePermission(dry_run=False),
            connection,
            None,
            self.journal,
            processes,
        )
        self.misdirected = misdirected_writes.MisdirectedWrites(
            connection, processes
        )
        return policy.ExternalChangePolicy(
            self.context,
            types.SimpleNamespace(foreign_changes=choice),
            cpu_hotplug.CpuHotplug(
                self.journal, self.misdirected, self.online
            ),
            self.misdirected,
            self.forgotten_shares.append,
        )

    def restore(
        self, guest: Guest, policy: policy.ExternalChangePolicy
    ) -> None:
        restore_guest.GuestRestorer(
            self.context, policy, self.misdirected
        ).restore(guest)

    def look(self, guest: Guest, choice: str = 'respect') -> int:
        """Reconcile a guest; return the number of external changes."""
        changes = self.changes(choice)
        changes.check(guest)
        if guest.external and guest.journalled:
            self.restore(guest, changes)
        return changes.count

    def assert_handed_back(self, guest: Guest, *names: str) -> None:
        self.assertEqual(frozenset(names), guest.external)
        self.assertIn(Hold.EXTERNAL, guest.holds)
        self.assertFalse(guest.free_to_write)
        self.assertFalse(guest.journalled)
        self.assertFalse(self.domain.has_metadata_copy)
        record = self.journal.load('u')
        self.assertTrue(record.is_handed_back)
        self.assertEqual(frozenset(names), record.external)
        # Another check finds nothing more, and writes nothing.
        before = self.domain.get()
        self.assertEqual(0, self.look(guest))
        self.assertEqual(before, self.domain.get())
