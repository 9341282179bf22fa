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

"""Which NICs the agent moved, on disk as durably as the cputune records."""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.agent.journal import record, store
from nova_vhpc.linux import qemu_process


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """NICs that the agent moved in one run of a domain.

    :ivar uuid: UUID of the domain.
    :ivar identity: the run of the domain.
    :ivar moved: bridge before and after the move, by MAC address.
    """

    uuid: str
    identity: qemu_process.Identity
    moved: Mapping[str, tuple[str, str]]

    def to_json(self) -> str:
        """Return the binding as a versioned JSON document."""
        return record.encode(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str, source: str) -> 'Binding':
        """Parse the output of :meth:`to_json`.

        :param source: where the text was read, for the error message.
        :raises NewerVersion: a newer agent wrote the binding.
        :raises JournalError: the text is damaged, altered or no binding.
        """
        with record.reading(text, source) as data:
            return cls(
                str(data['uuid']),
                qemu_process.Identity.from_dict(data['identity']),
                {m: (str(b), str(a)) for m, (b, a) in data['moved'].items()},
            )


class BindingJournal(store.Journal):
    """The bindings of this host, one JSON file per domain."""

    def __init__(self, state_path: str) -> None:
        super().__init__(state_path)
        self.path = self.path.with_name('bindings')

    def save_binding(self, binding: Binding) -> None:
        """Write a binding to disk, atomically.

        :raises JournalError: it was not written.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self._file(binding.uuid), binding.to_json() + '\n')
        except OSError as error:
            raise record.JournalError(
                f'cannot journal the NICs of {binding.uuid} in {self.path}: '
                f'{error.strerror}; they are not moved'
            ) from None

    def load_binding(self, uuid: str) -> Binding | None:
        """Return the binding of a domain; None without one.

        :raises NewerVersion: a newer agent wrote the binding.
        :raises Unreadable: the file cannot be read, or not be trusted.
        :raises JournalError: the binding is damaged.
        """
        path = self._file(uuid)
        text = self._read(path)
        if text is None:
            return None
        binding = Binding.from_json(text, str(path))
        if binding.uuid != uuid:
            raise record.JournalError(f'{path}: is about {binding.uuid}')
        return binding
