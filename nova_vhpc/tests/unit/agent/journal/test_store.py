# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Records on disk are complete or absent."""

import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile
from typing import Any
from unittest import mock

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import (
    CHECKSUM_KEY,
    VERSION,
    JournalError,
    JournalRecord,
    NewerVersion,
    Unreadable,
    encode,
)
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.linux import qemu_process

UUID = '8d4b6e9a-0000-4000-8000-000000000001'


def record(name: str = 'vm') -> JournalRecord:
    return JournalRecord(
        UUID,
        name,
        qemu_process.Identity('boot', 42, 7, 3),
        cputune.Cputune(
            {'vcpu_period': 100_000, 'vcpu_quota': -1, 'cpu_shares': 1024},
            (frozenset({0, 1}), frozenset({1})),
            frozenset({0}),
            2,
        ),
        repin=False,
        unmanaged_fields=frozenset({'cpu_shares'}),
        written={'vcpu_quota': frozenset({8_000}), 'cpu_shares': None},
        is_floating=True,
        restored=True,
        external=frozenset({'cpu_shares', 'vcpupin'}),
        sequence=7,
    )


def fields(made: JournalRecord) -> dict[str, Any]:
    """Return what a record says, without version and checksum."""
    data = json.loads(made.to_json())
    del data[CHECKSUM_KEY], data['version']
    return dict(data)


class JournalTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.state = tempfile.mkdtemp()
        self.journal = store.Journal(self.state)
        self.journal.prepare()
        self.file = pathlib.Path(self.state, 'journal', f'{UUID}.json')

    def test_saved_record_is_read_back(self) -> None:
        self.journal.save(record())
        self.assertEqual(record(), self.journal.load(UUID))
        self.assertEqual((UUID,), self.journal.uuids())
        self.assertEqual(0o600, self.file.stat().st_mode & 0o777)
        self.journal.remove(UUID)
        self.assertIsNone(self.journal.load(UUID))
        self.journal.remove(UUID)

    def test_every_torn_record_is_refused(self) -> None:
        text = record().to_json()
        for size in range(len(text)):
            self.assertRaises(
                JournalError,
                JournalRecord.from_json,
                text[:size],
                'somewhere',
            )

    @hypothesis.example(b'[' * 100_000)
    @hypothesis.given(strategies.binary(max_size=50))
    def test_invalid_record_is_refused(self, garbage: bytes) -> None:
        self.file.write_bytes(garbage)
        self.assertRaises(JournalError, self.journal.load, UUID)

    def test_record_of_newer_agent_raises_its_own_error(self) -> None:
        ahead = {'version': VERSION + 1}
        summed = json.loads(record().to_json())
        # It may have no checksum, or one of other things.
        for data in (fields(record()), summed):
            newer = {**data, **ahead}
            self.file.write_text(json.dumps(newer))
            error = self.assertRaises(NewerVersion, self.journal.load, UUID)
            self.assertIn(str(self.file), str(error))

    def test_record_without_checksum_is_refused(self) -> None:
        self.file.write_text(
            json.dumps({**fields(record()), 'version': VERSION})
        )
        self.assertRaises(JournalError, self.journal.load, UUID)

    def test_record_that_lacks_a_key_is_refused(self) -> None:
        whole = fields(record())
        for key in whole:
            part = {name: whole[name] for name in whole if name != key}
            self.file.write_text(encode(part))
            self.assertRaises(JournalError, self.journal.load, UUID)

    def test_keys_are_named_like_the_attributes(self) -> None:
        names = {field.name for field in dataclasses.fields(JournalRecord)}
        self.assertEqual(names, fields(record()).keys())

    def test_key_that_a_newer_agent_adds_is_ignored(self) -> None:
        self.file.write_text(encode({**fields(record()), 'more': 1}))
        self.assertEqual(record(), self.journal.load(UUID))

    def test_changed_byte_is_detected(self) -> None:
        whole = record().to_json()
        for place, character in enumerate(whole):
            for flipped in (1, 2, 4, 8, 16, 32, 64):
                changed = chr(ord(character) ^ flipped)
                text = whole[:place] + changed + whole[place + 1 :]
                with contextlib.suppress(JournalError):
                    self.assertEqual(
                        record(),
                        JournalRecord.from_json(text, 'somewhere'),
                    )

    def test_record_of_another_domain_is_refused(self) -> None:
        other = dataclasses.replace(record(), uuid='other')
        self.file.write_text(other.to_json())
        self.assertRaises(JournalError, self.journal.load, UUID)

    def test_failed_save_keeps_the_old_record(self) -> None:
        self.journal.save(record('old'))
        # Longer than a name may be: even root cannot write that draft.
        error = self.assertRaises(
            JournalError,
            self.journal.save,
            dataclasses.replace(record('new'), uuid='x' * 300),
        )
        self.assertIn('not written', str(error))
        loaded = self.journal.load(UUID)
        assert loaded is not None
        self.assertEqual('old', loaded.name)
        self.assertEqual([f'{UUID}.json'], os.listdir(self.file.parent))

    def test_record_is_synced_before_it_is_renamed(self) -> None:
        calls: list[object] = []
        fsync, replace = os.fsync, pathlib.Path.replace

        def note_fsync(descriptor: int) -> None:
            path = pathlib.Path(f'/proc/self/fd/{descriptor}').resolve()
            # All of it: what Python still holds back is not on the disk.
            calls.append(path if path.is_dir() else path.read_text())
            fsync(descriptor)

        def note_replace(draft: pathlib.Path, guest: pathlib.Path) -> None:
            calls.append('replace')
            replace(draft, guest)

        with (
            mock.patch.object(os, 'fsync', note_fsync),
            mock.patch.object(pathlib.Path, 'replace', note_replace),
        ):
            self.journal.save(record())
            directory = self.file.parent
            text = record().to_json() + '\n'
            self.assertEqual([text, 'replace', directory], calls)
            self.journal.remove(UUID)
            self.assertEqual([directory], calls[3:])

    def test_longer_leftover_draft_is_overwritten_completely(self) -> None:
        draft = self.file.with_name(f'.{UUID}.json.tmp')
        draft.write_text('x' * 10_000)
        self.journal.save(record())
        self.assertEqual(record(), self.journal.load(UUID))

    def test_error_is_raised_if_a_record_cannot_be_removed(self) -> None:
        # As on a disk that is read-only; root may remove all else.
        self.file.mkdir()
        self.assertRaises(JournalError, self.journal.remove, UUID)

    def test_error_is_raised_if_the_directory_cannot_be_made(self) -> None:
        path = pathlib.Path(self.state, 'file')
        path.write_text('')
        blocked = store.Journal(str(path))
        error = self.assertRaises(JournalError, blocked.prepare)
        self.assertIn('no VM is written to', str(error))
        self.assertRaises(JournalError, blocked.save, record())
        self.assertEqual((), blocked.uuids())

    def test_directory_that_others_may_write_is_not_used(self) -> None:
        self.journal.save(record())
        pathlib.Path(self.state).chmod(0o777)
        error = self.assertRaises(Unreadable, self.journal.load, UUID)
        self.assertIn(f'{self.state} has mode 0777', str(error))
        error = self.assertRaises(
            JournalError, self.journal.save, record('other')
        )
        self.assertIn(f'chmod go-w {self.state}', str(error))
        self.assertIn(f'{self.state} has mode', self.journal.problem())
        pathlib.Path(self.state).chmod(0o755)
        self.assertEqual(record(), self.journal.load(UUID))

    def test_record_that_others_may_write_is_not_read(self) -> None:
        self.journal.save(record())
        self.file.chmod(0o666)
        error = self.assertRaises(Unreadable, self.journal.load, UUID)
        self.assertIn('has mode 0666', str(error))

    def test_leftover_drafts_are_removed(self) -> None:
        draft = self.file.with_name(f'.{UUID}.json.tmp')
        draft.write_text('{')
        self.journal.prepare()
        self.assertFalse(draft.exists())

    def test_unreadable_record_is_set_aside(self) -> None:
        self.file.write_text('')
        aside = self.journal.set_aside(UUID)
        self.assertTrue(aside.exists())
        self.assertEqual((), self.journal.uuids())

    def test_uuid_cannot_leave_the_directory(self) -> None:
        for uuid in ('../x', 'a/b', '.x'):
            self.assertRaises(JournalError, self.journal.load, uuid)
