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

"""What every VM was set to before we first wrote to it, kept on disk.

One JSON file per domain below ``state_path``. A record is on the disk,
whole, before the first write to its domain: written beside its place,
fsync, renamed over it, fsync of the directory. So a record is either there
and whole or not there; one that is torn, or does not match its checksum, is
the disk's own fault and is set aside as ``.bad``, never believed.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.linux import qemu_process

VERSION = 1
SUFFIX = '.json'

CHECKSUM_KEY = 'crc32'
"""JSON key of the checksum over all other keys of a record.

A disk fault or a manual edit may change a byte such that the file is still
valid JSON, for example with another quota. Agents that do not know the
checksum ignore the key.
"""


class JournalError(Exception):
    """A record cannot be written or read; says which, why, what to do."""


class NewerVersion(JournalError):
    """A record was written by a newer agent."""


class Unreadable(JournalError):
    """Nothing can be read now: not even whether there is a record."""


@dataclasses.dataclass(frozen=True, slots=True)
class JournalRecord:
    """One domain's original settings.

    :ivar identity: of the QEMU process they belong to.
    :ivar repin: whether we may pin the guest's vCPUs.
    :ivar floats: it could use all CPUs that Nova gives to guests there.
    :ivar settled: it was put back; the copy in the XML is there for another
        host alone, to which the elements of our pins go along.
    :ivar released: managed values that somebody else has taken over.
    :ivar sliced: vCPU threads may have slices of their own.
    :ivar written: values that we may have written; None if that is not
        known, as in an older agent's record.
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

    def to_json(self) -> str:
        """Versioned JSON, one line."""
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
                'original': self.original.to_dict(),
            }
        )
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, source: str) -> 'JournalRecord':
        """Read what :meth:`to_json` made.

        :param source: where the text stood, for the message.
        :raises NewerVersion: a newer agent made it.
        :raises JournalError: it is torn, altered, empty or something else.
        """
        try:
            data: Any = json.loads(text)
            version = int(data['version'])
            # A newer agent may sum up otherwise.
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
    """All records of this host.

    :param state_path: ``[vhpc_agent]state_path``.
    """

    def __init__(self, state_path: str) -> None:
        self.path = pathlib.Path(state_path, 'journal')

    def prepare(self) -> None:
        """Make the directory and try a write, so trouble shows early.

        :raises JournalError: if nothing can be journalled there.
        """
        probe = self.path / '.probe'
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in self.path.glob('.*.tmp'):
                left.unlink(missing_ok=True)
            self._write(probe, 'x' * 4096)
            probe.unlink()
        except OSError as error:
            raise JournalError(
                f'no journal possible in {self.path}: {error.strerror}; '
                'until that is mended, no VM is written to'
            ) from None

    def make_directory(self) -> None:
        """Make it if it is missing; :meth:`prepare` says why it cannot be."""
        with contextlib.suppress(OSError):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def problem(self) -> str:
        """Why nothing can be journalled; empty if something can."""
        try:
            self.prepare()
        except JournalError as error:
            return str(error)
        return ''

    def save(self, record: JournalRecord) -> None:
        """Put a record on the disk, whole.

        :raises JournalError: it is not there, then; an older record of
            the domain is untouched.
        """
        target = self._file(record.uuid)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(target, record.to_json() + '\n')
        except OSError as error:
            raise JournalError(
                f'cannot journal {record.name} in {target}: '
                f'{error.strerror}; the VM is not written to'
            ) from None

    def load(self, uuid: str) -> JournalRecord | None:
        """The record of a domain; None without one.

        :raises NewerVersion, JournalError: it cannot be used.
        :raises Unreadable: for want of descriptors, or the disk fails.
        """
        target = self._file(uuid)
        try:
            text = target.read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unreadable(f'{target}: {error.strerror}') from None
        except UnicodeDecodeError as error:
            raise JournalError(f'{target}: {error}') from None
        record = JournalRecord.from_json(text, str(target))
        if record.uuid != uuid:
            raise JournalError(f'{target}: is about {record.uuid}')
        return record

    def uuids(self) -> tuple[str, ...]:
        """Domains that have a record, whole or not."""
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
        """Forget a domain: nothing of ours is left in it.

        :raises JournalError: the record is still there.
        """
        target = self._file(uuid)
        try:
            target.unlink()
            self._sync_directory()
        except FileNotFoundError:
            return
        except OSError as error:
            raise JournalError(
                f'cannot remove {target}: {error.strerror}'
            ) from None

    def set_aside(self, uuid: str) -> pathlib.Path:
        """Keep an unusable record for people, out of the agent's way."""
        target = self._file(uuid)
        aside = target.with_suffix('.bad')
        with contextlib.suppress(OSError):
            target.replace(aside)
        return aside

    def size_bytes(self) -> int:
        """Bytes in all records."""
        return sum(size for _, size in self._sizes())

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for uuid in self.uuids():
            with contextlib.suppress(OSError):
                yield uuid, self._file(uuid).stat().st_size

    def _file(self, uuid: str) -> pathlib.Path:
        if '/' in uuid or uuid.startswith('.'):
            raise JournalError(f"'{uuid}' is no domain's uuid")
        return self.path / f'{uuid}{SUFFIX}'

    def _write(self, target: pathlib.Path, text: str) -> None:
        draft = target.with_name(f'.{target.name}.tmp')
        try:
            descriptor = os.open(
                draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
            )
            with os.fdopen(descriptor, 'w') as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
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
