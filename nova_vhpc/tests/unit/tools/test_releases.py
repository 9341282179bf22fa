# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Our requirements fit each supported release of OpenStack.

devstack and the deployment tools install us with a release's
upper-constraints.txt: a minimum above it makes the installation fail.
"""

import pathlib
import tomllib

from packaging import requirements, utils

from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
RELEASES = ('2026.1', '2026.2')

NOT_GLOBAL = {'rich'}
"""What OpenStack's global requirements lack, and upper constraints have."""


def parsed(path: pathlib.Path) -> list[requirements.Requirement]:
    """Return the requirements or constraints in a file."""
    lines = (
        line.partition('#')[0].strip()
        for line in path.read_text().splitlines()
    )
    return [requirements.Requirement(line) for line in lines if line]


def listed(kind: str, release: str) -> dict[str, requirements.Requirement]:
    """Return the lines of one of a release's lists that hold here, by name."""
    found = parsed(
        pathlib.Path(__file__).parent / f'releases/{kind}-{release}.txt'
    )
    return {
        utils.canonicalize_name(one.name): one
        for one in found
        if one.marker is None
        or one.marker.evaluate({'python_version': '3.12'})
        or kind == 'global-requirements'
    }


BESIDE_OPENSTACK = ('agent', 'cli', 'scheduler', 'vendordata')
"""Extras that are installed beside the services of a cloud."""


def extra(name: str) -> list[requirements.Requirement]:
    """Return the requirements of one of our extras, but not on ourselves."""
    project = tomllib.loads((TOP / 'pyproject.toml').read_text())['project']
    lines = project['optional-dependencies'][name]
    found = map(requirements.Requirement, lines)
    return [one for one in found if one.name != 'nova-vhpc']


def ours() -> list[requirements.Requirement]:
    """Return what our package and its extras require beside OpenStack."""
    found = parsed(TOP / 'requirements.txt')
    for name in BESIDE_OPENSTACK:
        found += extra(name)
    return found


class ReleasesTest(base.TestCase):
    def test_upper_constraints_satisfy_our_requirements(self) -> None:
        for release in RELEASES:
            constraints = listed('upper-constraints', release)
            for one in ours():
                with self.subTest(release=release, requirement=str(one)):
                    upper = constraints[utils.canonicalize_name(one.name)]
                    (pin,) = upper.specifier
                    self.assertTrue(one.specifier.contains(pin.version), pin)

    def test_global_requirements_have_ours_by_name_and_marker(self) -> None:
        for release in RELEASES:
            known = listed('global-requirements', release)
            for one in ours():
                name = utils.canonicalize_name(one.name)
                if name in NOT_GLOBAL:
                    self.assertNotIn(name, known)
                    continue
                with self.subTest(release=release, requirement=str(one)):
                    self.assertEqual(known[name].name, one.name)
                    self.assertEqual(known[name].marker, one.marker)

    def test_other_extras_can_be_installed_beside_a_release(self) -> None:
        for release in RELEASES:
            constraints = listed('upper-constraints', release)
            for one in extra('osc') + extra('top'):
                upper = constraints.get(utils.canonicalize_name(one.name))
                if upper is not None:
                    (pin,) = upper.specifier
                    self.assertTrue(
                        one.specifier.contains(pin.version), (release, pin)
                    )
