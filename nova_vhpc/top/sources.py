# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Where ``nova-vhpc-top`` gets status documents from."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from nova_vhpc.agent.daemon import status_socket


class SourceError(Exception):
    """Nothing can be shown; the text says why, in one line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """What agents answered at one time.

    :ivar documents: status documents by host.
    :ivar missing: why other hosts did not answer, by host.
    :ivar remarks: what else is not known, a sentence each.
    :ivar cluster: ID of the only cluster that was asked for; None for all.
    :ivar many: whether several hosts were asked for; otherwise JSON is the
        one document itself.
    """

    documents: Mapping[str, Any]
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    remarks: Sequence[str] = ()
    cluster: str | None = None
    many: bool = False

    def as_json(self) -> Any:
        """Return the answers as a value that JSON has."""
        if not self.many:
            (document,) = self.documents.values()
            return document
        return {
            'cluster': self.cluster,
            'hosts': dict(self.documents),
            'missing': dict(self.missing),
            'remarks': list(self.remarks),
        }


class Source(Protocol):
    """Gets status documents."""

    def fetch(self) -> Answers:
        """Return what agents answer now.

        :raises SourceError: there is nothing to show.
        """


class SocketSource:
    """Asks the agent of this host.

    :param path: path of the agent's status socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def fetch(self) -> Answers:
        """Return what the agent answers now.

        :raises SourceError: no agent answers.
        """
        try:
            document = status_socket.fetch(self._path)
        except (OSError, ValueError) as error:
            raise SourceError(
                f'{self._path}: {error}; is nova-vhpc-agent running, and may '
                'you open its socket?'
            ) from None
        return Answers({self._path: document})


class FileSource:
    """Reads what ``--once --json`` printed before.

    :param path: path of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def fetch(self) -> Answers:
        """Return the answers in the file.

        :raises SourceError: the file cannot be read, or is no JSON.
        """
        try:
            content = json.loads(pathlib.Path(self._path).read_text('utf-8'))
        except (OSError, ValueError, RecursionError) as error:
            raise SourceError(
                f'{self._path}: {error}; it must hold what nova-vhpc-top '
                '--once --json has printed'
            ) from None
        if not isinstance(content, dict) or 'hosts' not in content:
            return Answers({self._path: content})
        try:
            return Answers(
                dict(content['hosts']),
                {str(k): str(v) for k, v in content['missing'].items()},
                [str(remark) for remark in content['remarks']],
                content['cluster'],
                True,
            )
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise SourceError(
                f'{self._path}: not what nova-vhpc-top --once --json prints '
                f'({type(error).__name__}: {error})'
            ) from None
