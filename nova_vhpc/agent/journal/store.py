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

"""The journal: original settings of all managed guests, on disk.

One JSON file per domain below ``state_path``. A record is complete on the disk
before the first write to its domain: written to a temporary file, fsync,
rename, fsync of the directory. A record that is damaged, or does not match its
checksum, therefore means a disk fault or an edit; it is renamed to ``.bad``
and never used.
"""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.linux import private_path, qemu_process

VERSION = 1
SUFFIX = '.json'

CHECKSUM_KEY = 'crc32'
"""JSON key of the checksum over all other keys of a record.

A disk fault or a manual edit may change a byte such that the file is still
valid JSON, for example with another quota. Agents that do not know the
checksum ignore the key.
"""


class JournalError(Exception):
    """A record cannot be written or read; the text says why and what to do."""


class NewerVersion(JournalError):
    """A newer agent wrote the record, in a newer format."""


class Unreadable(JournalError):
    """The disk cannot be read: it is unknown whether there is a record."""


@dataclasses.dataclass(frozen=True, slots=True)
class JournalRecord:
    """One domain's original settings.

    :ivar identity: run of the domain that the settings belong to.
    :ivar original: settings before the agent's first write.
    :ivar repin: whether the agent may pin the guest's vCPUs.
    :ivar floats: whether the guest could use all CPUs that Nova gives to
        guests on the host.
    :ivar settled: the original settings are restored; the metadata copy
        stays only for the destination host of a migration, to which the pin
        elements of the live XML travel along.
    :ivar released: managed values that must not be written, because they were
        changed externally.
    :ivar sliced: vCPU threads may have kernel slices set by the agent.
    :ivar external: managed values that were changed externally, for which the
        guest is handed back: not managed in this run.
    :ivar written: values that the agent may have written; None if that is
        not known, as in an older agent's record.
    """

    uuid: str
    name: str
    identity: qemu_process.Identity
    original: cputune.Cputune
    repin: bool = True
    released: frozenset[str] = frozenset()
    sliced: bool = False
    written: written_values.WrittenValues | None = None
    floats: bool = False
    settled: bool = False
    external: frozenset[str] = frozenset()

    @property
    def is_handed_back(self) -> bool:
        """Whether nothing of an agent is left in the guest.

        The record only says that the guest must not be managed in this run.
        """
        return bool(self.external) and self.released.issuperset(
            cputune.MANAGED
        )

    def handed_back(self) -> 'JournalRecord':
        """Return the record of a guest that was handed back and restored.

        No agent, not even an older one, writes anything because of it.
        """
        return dataclasses.replace(
            self, released=frozenset(cputune.MANAGED), written={}
        )

    def to_json(self) -> str:
        """Return the record as versioned JSON, one line."""
        data = _with_checksum(
            {
                'version': VERSION,
                'uuid': self.uuid,
                'name': self.name,
                'identity': dataclasses.asdict(self.identity),
                'repin': self.repin,
                'released': sorted(self.released),
                'sliced': self.sliced,
                'written': written_values.to_dict(self.written),
                'floats': self.floats,
                'settled': self.settled,
                'external': sorted(self.external),
                'original': self.original.to_dict(),
            }
        )
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, source: str) -> 'JournalRecord':
        """Parse the output of :meth:`to_json`.

        :param source: where the text was read, for the error message.
        :raises NewerVersion: a newer agent wrote the record.
        :raises JournalError: the text is damaged, altered or no record.
        """
        try:
            data: Any = json.loads(text)
            version = int(data['version'])
            # Before the checksum: a newer agent may compute it differently.
            if version > VERSION:
                raise NewerVersion(
                    f'{source}: version {version} of a newer agent; this '
                    f'one reads up to {VERSION}. Run the newer '
                    'nova-vhpc-agent --restore.'
                )
            _verify_checksum(data)
            return cls(
                str(data['uuid']),
                str(data['name']),
                qemu_process.Identity.from_dict(data['identity']),
                cputune.Cputune.from_dict(data['original']),
                bool(data['repin']),
                frozenset(str(name) for name in data['released']),
                bool(data['sliced']),
                written_values.from_dict(data.get('written')),
                bool(data.get('floats')),
                bool(data.get('settled')),
                # Agents before the key left single values alone.
                frozenset(
                    str(name)
                    for name in data.get('external', data['released'])
                ),
            )
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise JournalError(
                f'{source}: not a whole record ({error!r})'
            ) from None


class Journal:
    """The records of this host.

    :param state_path: ``[vhpc_agent]state_path``.
    """

    def __init__(self, state_path: str) -> None:
        self.path = pathlib.Path(state_path, 'journal')

    def prepare(self) -> None:
        """Create the directory and try a write, so that errors show early.

        :raises JournalError: no record can be written.
        """
        probe = self.path / '.probe'
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for leftover in self.path.glob('.*.tmp'):
                leftover.unlink(missing_ok=True)
            self._write(probe, 'x' * 4096)
            probe.unlink()
        except OSError as error:
            raise JournalError(
                f'no journal possible in {self.path}: {error.strerror}; '
                'until that is mended, no VM is written to'
            ) from None

    def make_directory(self) -> None:
        """Create the directory if it is missing; ignore errors.

        :meth:`prepare` reports them.
        """
        with contextlib.suppress(OSError):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def problem(self) -> str:
        """Return why no record can be written; empty if one can."""
        try:
            self.prepare()
        except JournalError as error:
            return str(error)
        return ''

    def save(self, record: JournalRecord) -> None:
        """Write a record to the disk, atomically.

        :raises JournalError: the record was not written; an older record of
            the domain is unchanged.
        """
        path = self._file(record.uuid)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(path, record.to_json() + '\n')
        except OSError as error:
            raise JournalError(
                f'cannot journal {record.name} in {path}: '
                f'{error.strerror}; the VM is not written to'
            ) from None

    def load(self, uuid: str) -> JournalRecord | None:
        """Return the record of a domain; None if there is none.

        :raises NewerVersion: a newer agent wrote the record.
        :raises JournalError: the record is damaged.
        :raises Unreadable: the file cannot be read, for example because the
            disk fails or no file descriptor is left; or other users could
            have written it.
        """
        path = self._file(uuid)
        text = self._read(path)
        if text is None:
            return None
        record = JournalRecord.from_json(text, str(path))
        if record.uuid != uuid:
            raise JournalError(f'{path}: is about {record.uuid}')
        return record

    def uuids(self) -> tuple[str, ...]:
        """Return the UUIDs of domains with a record, even a damaged one."""
        try:
            return tuple(
                sorted(
                    file.name.removesuffix(SUFFIX)
                    for file in self.path.glob(f'*{SUFFIX}')
                    if not file.name.startswith('.')
                )
            )
        except OSError:
            return ()

    def remove(self, uuid: str) -> None:
        """Remove the record of a domain that has its original settings.

        :raises JournalError: the record could not be removed.
        """
        path = self._file(uuid)
        try:
            path.unlink()
            self._sync_directory()
        except FileNotFoundError:
            return
        except OSError as error:
            raise JournalError(
                f'cannot remove {path}: {error.strerror}'
            ) from None

    def set_aside(self, uuid: str) -> pathlib.Path:
        """Rename an unusable record to ``.bad``; return the new path."""
        path = self._file(uuid)
        aside = path.with_suffix('.bad')
        with contextlib.suppress(OSError):
            path.replace(aside)
        return aside

    def size_bytes(self) -> int:
        """Return the size of all records, in bytes."""
        return sum(size for _, size in self._sizes())

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for uuid in self.uuids():
            with contextlib.suppress(OSError):
                yield uuid, self._file(uuid).stat().st_size

    def _file(self, uuid: str) -> pathlib.Path:
        if '/' in uuid or uuid.startswith('.'):
            raise JournalError(f"'{uuid}' is no domain's uuid")
        return self.path / f'{uuid}{SUFFIX}'

    def _read(self, path: pathlib.Path) -> str | None:
        """Return the text of a file; None if there is none.

        :raises Unreadable: it cannot be read, or not be trusted.
        :raises JournalError: it is not text.
        """
        try:
            with path.open() as file:
                problem = private_path.problem(self.path)
                if not problem:
                    problem = private_path.file_problem(file.fileno())
                if problem:
                    raise Unreadable(f'{path} is not trusted: {problem}')
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unreadable(f'{path}: {error.strerror}') from None
        except UnicodeDecodeError as error:
            raise JournalError(f'{path}: {error}') from None

    def _write(self, path: pathlib.Path, text: str) -> None:
        problem = private_path.problem(self.path)
        if problem:
            raise OSError(errno.EPERM, problem)
        draft = path.with_name(f'.{path.name}.tmp')
        try:
            descriptor = os.open(
                draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
            )
            with os.fdopen(descriptor, 'w') as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        self._sync_directory()

    def _sync_directory(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _with_checksum(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, CHECKSUM_KEY: _checksum(data)}


def _verify_checksum(data: Mapping[str, Any]) -> None:
    """Compare the checksum with the data.

    Data without a checksum, as agents before it was introduced wrote, is
    accepted.

    :raises ValueError: the checksum does not match.
    """
    if CHECKSUM_KEY not in data:
        return
    if data[CHECKSUM_KEY] != _checksum(data):
        raise ValueError(f'its {CHECKSUM_KEY} does not match')


def _checksum(data: Mapping[str, Any]) -> str:
    summed = {key: value for key, value in data.items() if key != CHECKSUM_KEY}
    text = json.dumps(summed, sort_keys=True)
    return f'{zlib.crc32(text.encode()):08x}'
