# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A journal record: one domain's original settings, as JSON.

The same text is a file in the journal and the copy in the domain's metadata.
"""

import contextlib
import dataclasses
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.linux import qemu_process

VERSION = 1

CHECKSUM_KEY = 'crc32'
"""JSON key of the checksum over all other keys of a record.

A disk fault or a manual edit may change a byte such that the file is still
valid JSON, for example with another quota.
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
    :ivar unmanaged_fields: managed values, by name, that must not be written,
        because they were changed externally; ``vcpupin`` stands for the pins
        of all vCPUs.
    :ivar written: values that the agent may have written.
    :ivar is_floating: whether the guest could use all CPUs that Nova gives to
        guests on the host.
    :ivar restored: the original settings are restored; the metadata copy
        stays only for the destination host of a migration, to which the pin
        elements of the live XML travel along.
    :ivar external: managed values that were changed externally, for which the
        guest is handed back: not managed in this run.
    :ivar sequence: number that is higher in each later record of a domain. If
        the copy in the metadata has a higher one than the journal, the journal
        was set back to an earlier state, as by a backup or a snapshot of its
        file system.
    """

    uuid: str
    name: str
    identity: qemu_process.Identity
    original: cputune.Cputune
    repin: bool = True
    unmanaged_fields: frozenset[str] = frozenset()
    written: written_values.WrittenValues = dataclasses.field(
        default_factory=dict
    )
    is_floating: bool = False
    restored: bool = False
    external: frozenset[str] = frozenset()
    sequence: int = 0

    @property
    def is_handed_back(self) -> bool:
        """Whether nothing of an agent is left in the guest.

        The record only says that the guest must not be managed in this run.
        """
        return bool(self.external) and self.unmanaged_fields.issuperset(
            cputune.MANAGED
        )

    def handed_back(self) -> 'JournalRecord':
        """Return the record of a guest that was handed back and restored.

        No agent writes anything because of it.
        """
        return dataclasses.replace(
            self, unmanaged_fields=frozenset(cputune.MANAGED), written={}
        )

    def to_json(self) -> str:
        """Return the record as a versioned JSON document."""
        return encode(
            {
                'uuid': self.uuid,
                'name': self.name,
                'identity': dataclasses.asdict(self.identity),
                'repin': self.repin,
                'unmanaged_fields': sorted(self.unmanaged_fields),
                'written': written_values.to_dict(self.written),
                'is_floating': self.is_floating,
                'restored': self.restored,
                'external': sorted(self.external),
                'sequence': self.sequence,
                'original': self.original.to_dict(),
            }
        )

    @classmethod
    def from_json(cls, text: str, source: str) -> 'JournalRecord':
        """Parse the output of :meth:`to_json`.

        :param source: where the text was read, for the error message.
        :raises NewerVersion: a newer agent wrote the record.
        :raises JournalError: the text is damaged, altered or no record.
        """
        with reading(text, source) as data:
            return cls(
                str(data['uuid']),
                str(data['name']),
                qemu_process.Identity.from_dict(data['identity']),
                cputune.Cputune.from_dict(data['original']),
                bool(data['repin']),
                _names(data['unmanaged_fields']),
                written_values.from_dict(data['written']),
                bool(data['is_floating']),
                bool(data['restored']),
                _names(data['external']),
                int(data['sequence']),
            )


def _names(data: Any) -> frozenset[str]:
    return frozenset(str(name) for name in data)


def encode(data: Mapping[str, Any]) -> str:
    """Return a versioned JSON document with a checksum, in one line."""
    document = {**data, 'version': VERSION}
    document[CHECKSUM_KEY] = _checksum(document)
    return json.dumps(document, sort_keys=True)


@contextlib.contextmanager
def reading(text: str, source: str) -> Iterator[Any]:
    """Give the data of a document to a block that reads it.

    :param text: output of :func:`encode`.
    :param source: where the text was read, for the error message.
    :raises NewerVersion: a newer agent wrote the document.
    :raises JournalError: the text is damaged or altered, or the block finds
        that it is another document.
    """
    try:
        data: Any = json.loads(text)
        version = int(data['version'])
        # Before the checksum: a newer agent may compute it differently.
        if version > VERSION:
            raise NewerVersion(
                f'{source}: version {version} of a newer agent; this one '
                f'reads up to {VERSION}. Run the newer nova-vhpc-agent '
                '--restore.'
            )
        if data.pop(CHECKSUM_KEY) != _checksum(data):
            raise ValueError(f'its {CHECKSUM_KEY} does not match')
        yield data
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise JournalError(
            f'{source}: damaged or not a record ({error!r})'
        ) from None


def _checksum(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True)
    return f'{zlib.crc32(text.encode()):08x}'
