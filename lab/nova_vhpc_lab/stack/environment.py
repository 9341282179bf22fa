# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The virtual environment that a part of the embedded stack runs from."""

import dataclasses
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_VERSIONS = (
    'import importlib.metadata, sys\n'
    'print(*map(importlib.metadata.version, sys.argv[1:]))'
)


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment, with the stack's services and nova-vhpc.

    :ivar programs: directory of its programs; by default that of the running
        Python.
    :ivar agent: such a directory of the environment that has the agent, if
        that is another one.
    :ivar tree: directory into which ``pip install --target`` has put another
        nova-vhpc, whose programs run instead; None for none.
    """

    programs: Path = Path(sys.executable).parent
    agent: Path | None = None
    tree: Path | None = None

    def program(self, name: str) -> Path:
        """Return the path of a console script."""
        if not name.startswith('nova-vhpc-'):
            return self.programs / name
        if self.tree is not None:
            return self.tree / 'bin' / name
        return (self.agent or self.programs) / name

    def versions(self, *packages: str) -> list[str]:
        """Return the versions of packages beside nova-compute."""
        return _versions(self.programs, packages)

    def agent_versions(self, *packages: str) -> list[str]:
        """Return the versions of packages beside the agent."""
        return _versions(self.agent or self.programs, packages)

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables with which programs of nova-vhpc run."""
        return {} if self.tree is None else {'PYTHONPATH': str(self.tree)}


HERE = Environment()
"""The environment of the running program."""


def _versions(programs: Path, packages: Sequence[str]) -> list[str]:
    """Return the versions of packages of the environment of programs.

    :raises CalledProcessError: if one is not installed.
    """
    return subprocess.run(
        (programs / 'python', '-c', _VERSIONS, *packages),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
