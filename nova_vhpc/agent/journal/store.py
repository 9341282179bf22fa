# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The journal: original settings of all managed guests, on disk.

One JSON file per domain below ``state_path``. A record is complete on the disk
before the first write to its domain: written to a temporary file, fsync,
rename, fsync of the directory. A record that is damaged, or does not match its
checksum, therefore means a disk fault or an edit; it is renamed to ``.bad``
and never used.

A copy of each record is in the domain's live XML, an element of its own in
``<metadata>``. A live migration and a managed save carry the agent's settings
to a QEMU process that has no record in this host's journal; the copy travels
along, so that any agent or hook that finds it can restore the original
settings. It is removed when they are restored.
"""

import contextlib
import errno
import html
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import libvirt

from nova_vhpc.agent.journal.record import (
    JournalError,
    JournalRecord,
    Unreadable,
)
from nova_vhpc.linux import private_path

SUFFIX = '.json'


class Record(Protocol):
    """A record of one domain."""

    @property
    def uuid(self) -> str:
        """UUID of the domain."""

    def to_json(self) -> str:
        """Return the record as JSON, one line."""


_Record = TypeVar('_Record', bound=Record)


class RecordFiles(Generic[_Record]):
    """The records of this host of one kind, a JSON file for each domain.

    :param path: directory of the files.
    :param parse: makes a record of the text of a file, whose path it is
        given for error messages; raises JournalError.
    :param subject: returns what a record is about, for error messages.
    :param consequence: what happens if a record cannot be written, likewise.
    """

    def __init__(
        self,
        path: pathlib.Path,
        parse: Callable[[str, str], _Record],
        subject: Callable[[_Record], str],
        consequence: str,
    ) -> None:
        self.path = path
        self._parse = parse
        self._subject = subject
        self._consequence = consequence

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
                f'cannot write the journal in {self.path}: {error.strerror}; '
                'no VM is written to until this is mended'
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

    def save(self, record: _Record) -> None:
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
                f'cannot journal {self._subject(record)} in {path}: '
                f'{error.strerror}; {self._consequence}'
            ) from None

    def load(self, uuid: str) -> _Record | None:
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
        record = self._parse(text, str(path))
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
        return sum(self._sizes())

    def _sizes(self) -> Iterator[int]:
        for uuid in self.uuids():
            with contextlib.suppress(OSError):
                yield self._file(uuid).stat().st_size

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


class Journal(RecordFiles[JournalRecord]):
    """The original settings of this host's guests.

    :param state_path: ``[vhpc_agent]state_path``.
    """

    def __init__(self, state_path: str) -> None:
        super().__init__(
            pathlib.Path(state_path, 'journal'),
            JournalRecord.from_json,
            lambda record: record.name,
            'the VM is not written to',
        )


METADATA_URI = 'http://openstack.org/xmlns/libvirt/nova-vhpc/1.0'
_PREFIX = 'vhpc'

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
_OPEN, _CLOSE = '<journal>', '</journal>'


def put_metadata(domain: Any, record: JournalRecord) -> None:
    """Write the metadata copy.

    :raises libvirt.libvirtError: libvirt refused it.
    """
    # The domain's name may contain any character.
    text = html.escape(record.to_json(), quote=False)
    domain.setMetadata(
        _ELEMENT, f'{_OPEN}{text}{_CLOSE}', _PREFIX, METADATA_URI, _LIVE
    )


def get_metadata(domain: Any) -> JournalRecord | None:
    """Return the metadata copy; None if there is none.

    :raises NewerVersion: a newer agent wrote the copy.
    :raises JournalError: the copy is damaged.
    :raises libvirt.libvirtError: libvirt could not read it.
    """
    try:
        xml = domain.metadata(_ELEMENT, METADATA_URI, _LIVE)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            return None
        raise
    text = html.unescape(xml.partition('>')[2].rpartition('<')[0])
    return JournalRecord.from_json(text, f'metadata of {domain.name()}')


def remove_metadata(domain: Any) -> None:
    """Remove the metadata copy, if there is one.

    :raises libvirt.libvirtError: libvirt refused it.
    """
    try:
        domain.setMetadata(_ELEMENT, None, _PREFIX, METADATA_URI, _LIVE)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            raise
