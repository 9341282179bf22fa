# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Each program needs the base and its extra only, and says which that is."""

import functools
import importlib.metadata
import pathlib
import tomllib

from packaging import requirements, utils

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.cli import launcher

TOP = pathlib.Path(__file__).parents[4]

PROGRAMS = {
    'agent': ('agent', '--help'),
    'ctl': ('cli', '--help'),
    'explain': ('cli', '--help'),
    'flavor': ('cli', '--help'),
    'hook': ('agent', '--help'),
    'top': ('top', '--help'),
    'vendordata': ('vendordata', '--help'),
}
"""Extra of each program, and arguments."""

LOADED_BY_OTHERS = {
    'scheduler': ('scheduler.filters', 'scheduler.weights'),
    'osc': (
        'cli.cluster',
        'cli.explain',
        'cli.flavor',
        'cli.ctl',
    ),
}
"""Modules that nova or the ``openstack`` client loads, for each extra."""


def lines(extra: str) -> list[str]:
    """Return the requirements of an extra and of the extras in it."""
    project = tomllib.loads((TOP / 'pyproject.toml').read_text())['project']
    found = []
    for line in project['optional-dependencies'][extra]:
        one = requirements.Requirement(line)
        if one.name == 'nova-vhpc':
            for each in one.extras:
                found += lines(each)
        else:
            found.append(line)
    return found


def installed_with(asked: list[str]) -> set[str]:
    """Return the distributions that pip would install."""
    found: set[tuple[str, frozenset[str]]] = set()
    left = [requirements.Requirement(line) for line in asked]
    while left:
        one = left.pop()
        key = (utils.canonicalize_name(one.name), frozenset(one.extras))
        if key in found:
            continue
        found.add(key)
        try:
            distribution = importlib.metadata.distribution(one.name)
        except importlib.metadata.PackageNotFoundError:
            # For another platform or Python.
            continue
        needed = map(requirements.Requirement, distribution.requires or ())
        left += [
            each
            for each in needed
            if each.marker is None
            or any(
                each.marker.evaluate({'extra': extra})
                for extra in ('', *one.extras)
            )
        ]
    return {name for name, _ in found}


@functools.cache
def blocked(extra: str | None, more: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the installed top-level modules outside of base and extra.

    :param more: further distributions that are installed.
    """
    text = (TOP / 'requirements.txt').read_text()
    asked = [line for line in text.splitlines() if not line.startswith('#')]
    if extra is not None:
        asked += lines(extra)
    wanted = installed_with([*asked, *more])
    modules = importlib.metadata.packages_distributions()
    return frozenset(
        module
        for module, owners in modules.items()
        if module != 'nova_vhpc'
        and wanted.isdisjoint(map(utils.canonicalize_name, owners))
    )


class ExtrasTest(base.TestCase):
    def test_program_starts_with_its_extra_only(self) -> None:
        for program, (extra, argument) in PROGRAMS.items():
            with self.subTest(program=program):
                ended = launcher.run_without(
                    blocked(extra),
                    f'nova_vhpc.cli.launch:{program}',
                    argument,
                )
                self.assertEqual(0, ended.returncode, ended.stderr)
                self.assertIn('usage: nova-vhpc-', ended.stdout)

    def test_program_without_its_extra_names_it_in_one_line(self) -> None:
        for program, (extra, argument) in PROGRAMS.items():
            with self.subTest(program=program):
                ended = launcher.run_without(
                    blocked(None), f'nova_vhpc.cli.launch:{program}', argument
                )
                (line,) = ended.stderr.splitlines()
                self.assertIn(f"pip install 'nova-vhpc[{extra}]'", line)

    def test_what_others_load_needs_its_extra_only(self) -> None:
        for extra, modules in LOADED_BY_OTHERS.items():
            more = ('nova',) if extra == 'scheduler' else ()
            with self.subTest(extra=extra):
                ended = launcher.run_without(
                    blocked(extra, more),
                    ','.join(f'nova_vhpc.{module}' for module in modules),
                )
                self.assertEqual(0, ended.returncode, ended.stderr)

    def test_options_are_listed_with_the_base_only(self) -> None:
        ended = launcher.run_without(
            blocked(None), 'nova_vhpc.conf.opts:list_opts'
        )
        self.assertNotIn('Traceback', ended.stderr)

    def test_upgrade_check_runs_with_the_base_only(self) -> None:
        ended = launcher.run_without(
            blocked(None), 'nova_vhpc.cli.launch:status', 'upgrade', 'check'
        )
        self.assertNotIn('Traceback', ended.stdout + ended.stderr)
        self.assertIn('Check: Known traps', ended.stdout)
