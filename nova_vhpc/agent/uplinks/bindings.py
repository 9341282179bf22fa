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
import pathlib
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


class BindingJournal(store.RecordFiles[Binding]):
    """The bindings of this host.

    :param state_path: ``[vhpc_agent]state_path``.
    """

    def __init__(self, state_path: str) -> None:
        super().__init__(
            pathlib.Path(state_path, 'bindings'),
            Binding.from_json,
            lambda binding: f'the NICs of {binding.uuid}',
            'they are not moved',
        )
