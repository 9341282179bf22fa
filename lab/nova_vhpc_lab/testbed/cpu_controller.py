# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Groups of the CPU controller, on cgroup v1 and v2.

Weights are multiples of the kernel's default weight of a group: 1024
(``cpu.shares``) on v1, 100 (``cpu.weight``) on v2.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from nova_vhpc_lab.testbed import errors

CGROUP = Path('/sys/fs/cgroup')


@dataclasses.dataclass(frozen=True, slots=True)
class CpuController:
    """The CPU controller of this machine.

    :ivar root: directory of its root group.
    :ivar unified: whether it is on cgroup v2 (the unified hierarchy).
    """

    root: Path
    unified: bool

    @classmethod
    def find(cls, cgroup: Path = CGROUP) -> Self:
        """Return the controller of this machine.

        :param cgroup: directory on which the control groups are mounted.
        :raises LabError: there is none, or it is not enabled for groups.
        """
        for root in (cgroup, cgroup / 'unified'):
            if 'cpu' in _words(root / 'cgroup.controllers'):
                if 'cpu' not in _words(root / 'cgroup.subtree_control'):
                    raise errors.LabError(
                        'the CPU controller is not for groups; '
                        f'run: echo +cpu >{root / "cgroup.subtree_control"}'
                    )
                return cls(root, unified=True)
        if (cgroup / 'cpu/cpu.shares').exists():
            return cls(cgroup / 'cpu', unified=False)
        raise errors.LabError(f'no CPU controller is mounted below {cgroup}')

    def group_of(self, pid: int | str) -> Path:
        """Return the group of a process.

        :param pid: process ID, or ``self``.
        :raises LabError: the process has ended.
        """
        with contextlib.suppress(OSError):
            for line in Path(f'/proc/{pid}/cgroup').read_text().splitlines():
                number, controllers, path = line.split(':', 2)
                if (
                    number == '0'
                    if self.unified
                    else 'cpu' in controllers.split(',')
                ):
                    return self.root / path.lstrip('/')
        raise errors.LabError(f'process {pid} is in no group of {self.root}')

    def make_group(self, name: str, weight: float = 1.0) -> Path:
        """Make a group, and return its directory.

        :param name: path of the group, relative to the root group.
        :param weight: weight of the group, 1.0 being the kernel's default.
        :raises LabError: the group cannot be made; it may exist already.
        """
        group = self.root / name
        created = False
        try:
            group.mkdir()
            created = True
            if self.unified and group.parent != self.root:
                (group.parent / 'cgroup.subtree_control').write_text('+cpu')
            self.set_weight(group, weight)
        except OSError as error:
            if created:
                with contextlib.suppress(OSError):
                    group.rmdir()
            raise errors.LabError(f'{group}: {error.strerror}') from error
        return group

    def set_weight(self, group: Path, weight: float) -> None:
        """Set a group's weight, limited to the kernel's range."""
        (group / self._file).write_text(self._value(weight))

    @contextlib.contextmanager
    def temporary_weight(
        self,
        group: Path,
        weight: float,
        report: Callable[..., None] = lambda *_: None,
    ) -> Iterator[None]:
        """Set a group's weight for the duration of a ``with`` block.

        :param report: called before, with the arguments of
            :func:`~nova_vhpc_lab.testbed.supervisor.clean_up`, and afterwards
            with ``done`` and the same arguments.
        """
        file = group / self._file
        before = file.read_text()
        words = ('value', str(file), self._value(weight), before)
        report(*words)
        self.set_weight(group, weight)
        try:
            yield
        finally:
            # The group may have gone with its last domain.
            with contextlib.suppress(OSError):
                file.write_text(before)
            report('done', *words)

    def remove_group(self, group: Path) -> None:
        """Move a group's processes to the root group, and remove the group."""
        name = 'cgroup.procs' if self.unified else 'tasks'
        for member in _words(group / name):
            with contextlib.suppress(OSError):
                (self.root / name).write_text(member)
        deadline = time.monotonic() + 5
        while True:
            try:
                group.rmdir()
                return
            except OSError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.1)

    def _value(self, weight: float) -> str:
        if self.unified:
            return str(min(max(1, round(100 * weight)), 10_000))
        return str(min(max(2, round(1024 * weight)), 262_144))

    @property
    def _file(self) -> str:
        return 'cpu.weight' if self.unified else 'cpu.shares'


def _words(path: Path) -> list[str]:
    """Return the words of a file; none if it cannot be read."""
    try:
        return path.read_text().split()
    except OSError:
        return []
