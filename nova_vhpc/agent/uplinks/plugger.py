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


"""A claim is where the packets go: plugs guest NICs into claimed uplinks.

Nova's claim on an uplink does not choose the bridge that os-vif plugs a
NIC into. With ``[vhpc_agent] bind_uplinks`` the agent reads the server's
claims from Placement and moves the NIC by libvirt's live device update:
journalled before, undone after, made anew when the domain is restarted.
:mod:`binder` says when.
"""

import dataclasses
import json
import threading
from collections.abc import Mapping
from typing import Any

import libvirt

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.linux import qemu_process

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """What was moved in one run of a domain.

    :ivar moved: by MAC address: the bridge before, and the one after.
    """

    uuid: str
    identity: qemu_process.Identity
    moved: Mapping[str, tuple[str, str]]


class BindingJournal(store.Journal):
    """Bindings on the disk, as durable as the cputune records."""

    def __init__(self, state_path: str) -> None:
        super().__init__(state_path)
        self.path = self.path.with_name('bindings')

    def save_binding(self, binding: Binding) -> None:
        """Put a binding on the disk, whole.

        :raises JournalError: it is not there.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = json.dumps({'version': 1, **dataclasses.asdict(binding)})
            self._write(self._file(binding.uuid), text + '\n')
        except OSError as error:
            raise store.JournalError(
                f'cannot journal the NICs of {binding.uuid} in {self.path}: '
                f'{error.strerror}; they are not moved'
            ) from None

    def load_binding(self, uuid: str) -> Binding | None:
        """The binding of a domain; None without one.

        :raises JournalError: it cannot be used.
        """
        target = self._file(uuid)
        try:
            data = json.loads(target.read_text())
            if data['version'] != 1:
                raise ValueError(f'version {data["version"]}')
            return Binding(
                str(data['uuid']),
                qemu_process.Identity(**data['identity']),
                {m: (str(b), str(a)) for m, (b, a) in data['moved'].items()},
            )
        except FileNotFoundError:
            return None
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            raise store.JournalError(f'{target}: {error!r}') from None


class Plugger:
    """Moves and puts back the NICs of single domains."""

    dry_run = False

    def __init__(
        self, records: BindingJournal, host: qemu_process.Processes
    ) -> None:
        self._records = records
        self._host = host

    def bind(
        self, domain: Any, bridges: tuple[str, ...], uplink_nic: int | None
    ) -> int:
        """Move a domain's NICs to the bridges of its claims.

        :returns: NICs that were moved.
        :raises UnsupportedError, JournalError: nothing was written.
        :raises libvirt.libvirtError: libvirt refused; what was moved
            before is journalled.
        """
        known = {nic.mac: nic for nic in interfaces.read(domain.XMLDesc(0))}
        moves = interfaces.choose(tuple(known.values()), bridges, uplink_nic)
        updates = {
            mac: known[mac].plugged_into(bridge)
            for mac, bridge in moves.items()
        }
        if not updates:
            return 0
        uuid = domain.UUIDString()
        identity = self._host.identity(uuid, domain.ID())
        record = self._records.load_binding(uuid)
        moved = _moved(domain, record, identity)
        for mac, bridge in moves.items():
            before = moved.get(mac, (known[mac].bridge or '', ''))[0]
            moved[mac] = (before, bridge)
        self._records.save_binding(Binding(uuid, identity, moved))
        for xml in updates.values():
            domain.updateDeviceFlags(xml, LIVE)
        return len(updates)

    def undo(self, domain: Any) -> int:
        """Put a domain's NICs back; those that others moved stay.

        :returns: NICs that were put back.
        :raises JournalError, libvirt.libvirtError: the record is kept.
        """
        uuid = domain.UUIDString()
        record = self._records.load_binding(uuid)
        if record is None:
            return 0
        done = 0
        moved = _moved(domain, record, self._host.identity(uuid, domain.ID()))
        for nic in interfaces.read(domain.XMLDesc(0)):
            before, after = moved.get(nic.mac, ('', ''))
            if after and nic.bridge == after and before != after:
                domain.updateDeviceFlags(nic.plugged_into(before), LIVE)
                done += 1
        self._records.remove(uuid)
        return done

    def uuids(self) -> frozenset[str]:
        """Domains that have a record."""
        return frozenset(self._records.uuids())

    def forget(self, uuid: str) -> None:
        """A domain that does not run here needs its record no more.

        :raises JournalError: it is still there.
        """
        if not self._host.find(uuid):
            self._records.remove(uuid)

    def undo_all(self, conn: Any) -> dict[str, str]:
        """Put all domains back that have a record, all at the same time.

        One that hangs holds up the answer, but no other one.

        :returns: what went wrong, by uuid; their records are kept.
        """
        failed: dict[str, str] = {}

        def undo(uuid: str) -> None:
            try:
                if self._host.find(uuid):
                    self.undo(conn.lookupByUUIDString(uuid))
                else:
                    self._records.remove(uuid)
            except Exception as error:
                # Whatever is wrong with one, the others are put back.
                failed[uuid] = str(error) or repr(error)

        threads = [
            threading.Thread(target=undo, args=(uuid,), daemon=True)
            for uuid in self._records.uuids()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failed


def _moved(
    domain: Any, record: Binding | None, identity: qemu_process.Identity
) -> dict[str, tuple[str, str]]:
    """What we have moved in a run of a domain, as far as a record tells.

    libvirt's calls name the domain only: one that waits while the VM is
    destroyed and started anew is carried out on the new run. So a NIC that is
    where we wanted it in another run, and that the definition has where it was
    before, is one that we have moved, too.

    :returns: by MAC address: the bridge before, and the one after.
    :raises libvirt.libvirtError: it cannot be told.
    """
    if record is None:
        return {}
    if record.identity.same_run(identity):
        return dict(record.moved)
    now, defined = (
        {nic.mac: nic.bridge for nic in interfaces.read(domain.XMLDesc(flags))}
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)
    )
    return {
        mac: (before, after)
        for mac, (before, after) in record.moved.items()
        if (defined.get(mac), now.get(mac)) == (before, after)
    }


def make_plugger(conf: Any) -> Plugger:
    """What moves guests' NICs and puts them back."""
    return Plugger(
        BindingJournal(conf.vhpc_agent.state_path),
        qemu_process.make_processes(conf),
    )
