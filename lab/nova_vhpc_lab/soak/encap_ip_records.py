# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Damaged records of encap IPs, and ports that others have changed."""

import contextlib
import json
import pathlib
import random
import tempfile
from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent.journal import record
from nova_vhpc.agent.uplinks.binders import (
    encap_ip,
    encap_ip_writer,
    guest_ports,
)
from nova_vhpc.tests.unit.agent.uplinks.binders import ovsdb
from nova_vhpc.topology import links
from nova_vhpc_lab.soak import damage

MACS = ('fa:16:3e:00:00:01', 'fa:16:3e:00:00:02')
FOREIGN = (None, '', '10.1.0.1', '10.9.9.9', 'x' * 300)


def encap_ip_record(rng: random.Random) -> None:
    """Restore ports by a record that may be damaged.

    :raises AssertionError: a port was written by a damaged record, or was
        left though its record is whole, or what an operator set was changed.
    """
    with tempfile.TemporaryDirectory(dir='/dev/shm') as state:
        journal = encap_ip_writer.EncapIpJournal(state)
        database = ovsdb.MemoryOvsdb()
        ports = tuple(_port(rng, database, mac) for mac in MACS)
        whole = encap_ip_writer.GuestRecord('u', ports)
        journal.save(whole)
        text, is_forged = _damaged(rng, whole.to_json())
        file = journal.path / 'u.json'
        file.write_bytes(text.encode(errors='surrogatepass'))
        before = database.contents()
        used = _used(journal)
        if used not in (None, whole) and not is_forged:
            raise AssertionError(f'{text!r} was taken for a record')
        failures = _restore(database, journal)
        if used is None:
            _check_untouched(database, before, failures, file)
        else:
            _check_restored(used, database, before, bool(failures))


def _port(
    rng: random.Random, database: ovsdb.MemoryOvsdb, mac: str
) -> encap_ip_writer.PortRecord:
    """Plug a port that an agent, and perhaps somebody else, has written."""
    row = database.plug('u', mac)
    original = rng.choice((None, '', '10.1.0.1'))
    written = rng.sample(('10.2.0.1', '10.3.0.1'), rng.randint(1, 2))
    present = rng.choice((original, *written, rng.choice(FOREIGN)))
    database.set_by_hand(row, encap_ip.KEY, present)
    return encap_ip_writer.PortRecord(
        row,
        f'tap{mac[-2:]}',
        original,
        frozenset(written),
        external=rng.random() < 0.1,
    )


def _damaged(rng: random.Random, text: str) -> tuple[str, bool]:
    """Return a record as it is, torn, flipped, edited or of a newer agent.

    :returns: the text, and whether it is another one with a right checksum.
    """
    data: dict[str, Any] = json.loads(text)
    kind = rng.randrange(5)
    if kind == 0:
        return text, False
    if kind == 1:
        return damage.characters(rng, text), False
    if kind == 2:
        at, bit = rng.randrange(len(text)), 1 << rng.randrange(7)
        flipped = chr(ord(text[at]) ^ bit)
        return text[:at] + flipped + text[at + 1 :], False
    if kind == 3:
        return json.dumps({**data, 'version': rng.randint(2, 10**20)}), False
    del data[record.CHECKSUM_KEY]
    edited = damage.document(rng, data)
    if isinstance(edited, dict) and rng.random() < 0.7:
        return record.encode(edited), True
    return json.dumps(edited), False


def _used(
    journal: encap_ip_writer.EncapIpJournal,
) -> encap_ip_writer.GuestRecord | None:
    """Return the record that is read; None if it is refused."""
    with contextlib.suppress(record.JournalError):
        return journal.load('u')
    return None


def _restore(
    database: ovsdb.MemoryOvsdb, journal: encap_ip_writer.EncapIpJournal
) -> dict[str, str]:
    binder = encap_ip.EncapIpBinder(
        database,  # type: ignore[arg-type]
        journal,
        'h1',
        guest_ports.UplinkLinks(links.Links(pathlib.Path('/nowhere'))),
        lambda: False,
    )

    def no_libvirt() -> Any:
        raise AssertionError('libvirt was asked')

    return binder.restore_all(no_libvirt)


def _check_untouched(
    database: ovsdb.MemoryOvsdb,
    before: Any,
    failures: Mapping[str, str],
    file: pathlib.Path,
) -> None:
    """Check that a record that cannot be used is kept and reported."""
    if database.contents() != before:
        raise AssertionError('a port was written by a damaged record')
    if not failures or not file.exists():
        raise AssertionError(f'a damaged record is not reported: {failures}')


def _check_restored(
    used: encap_ip_writer.GuestRecord,
    database: ovsdb.MemoryOvsdb,
    before: Any,
    has_failed: bool,
) -> None:
    """Check that ports are as the record says, and else untouched."""
    for row, external_ids in database.contents().items():
        present = before[row].get(encap_ip.KEY)
        wanted = {
            port.before
            for port in used.ports
            if port.row == row
            and not port.external
            and port.may_be_agents(present)
        } or {present}
        if has_failed:
            # A forged record may have a port twice.
            wanted.add(present)
        if external_ids.get(encap_ip.KEY) not in wanted:
            raise AssertionError(
                f'{external_ids} instead of {wanted} by {used}'
            )
