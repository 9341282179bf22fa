# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from oslo_upgradecheck import upgradecheck

from nova_vhpc.tests import base
from nova_vhpc.topology import model
from nova_vhpc.upgradecheck import checks

Code = upgradecheck.Code


class ChecksTest(base.TestCase):
    def assert_result(self, code, result, *words):
        self.assertEqual(code, result.code, result.details)
        for word in words:
            self.assertIn(word, result.details)

    def test_nova_33_and_34_succeed_and_other_versions_do_not(self):
        for version, code in (
            (None, Code.SUCCESS),
            ('34.0.0', Code.SUCCESS),
            ('34.1.0.dev3', Code.SUCCESS),
            ('33.0.2', Code.SUCCESS),
            ('32.1.0', Code.FAILURE),
            ('35.0.0', Code.WARNING),
            ('garbage', Code.FAILURE),
        ):
            self.assert_result(code, checks.nova_version(version))

    def test_agent(self):
        self.assert_result(Code.SUCCESS, checks.agent('ok', []))
        for state, code in (
            ('degraded', Code.WARNING),
            ('failed', Code.FAILURE),
        ):
            self.assert_result(
                code, checks.agent(state, ['bus: away', 'x: y']), 'bus: away'
            )

    def test_hosts_with_old_or_missing_stamps_are_warned_of(self):
        now_s = 1_800_000_000.0
        fresh = model.stamp(now_s)
        old = model.stamp(now_s - 4000)
        self.assert_result(
            Code.WARNING, checks.placement(0, {}, now_s, 1200), 'no host'
        )
        self.assert_result(
            Code.SUCCESS,
            checks.placement(2, {'a': fresh, 'b': fresh}, now_s, 1200),
        )
        self.assert_result(
            Code.WARNING,
            checks.placement(3, {'a': fresh, 'b': old}, now_s, 1200),
            '1 of 3',
            '(b)',
            '1 no stamp',
        )
        self.assert_result(
            Code.SUCCESS, checks.placement(1, {'b': old}, now_s, 0)
        )
        all_fresh = (3, dict.fromkeys('abc', fresh), now_s, 1200)
        self.assert_result(
            Code.WARNING,
            checks.placement(*all_fresh, cut_off=1),
            'leaves 1 of 3 hosts',
            'max_allocation_candidates',
        )
        self.assert_result(
            Code.WARNING,
            checks.placement(*all_fresh, unseen=2),
            '2 hosts',
            'max_placement_results',
        )
        self.assert_result(
            Code.FAILURE, checks.placement_away('refused'), 'refused'
        )

    def test_libvirt_needs_version_9(self):
        self.assert_result(
            Code.SUCCESS, checks.libvirt(9_000_000), 'libvirt 9.0.0'
        )
        self.assert_result(Code.FAILURE, checks.libvirt(8_010_000), '8.10.0')
        self.assert_result(
            Code.FAILURE, checks.libvirt(None, 'no socket'), 'no socket'
        )

    def test_cgroup_needs_cpu_and_cpuset(self):
        self.assert_result(Code.SUCCESS, checks.cgroup({'cpu', 'cpuset'}))
        self.assert_result(Code.FAILURE, checks.cgroup({'cpu'}), 'cpuset')

    def test_tick_of_100_or_unknown_is_warned_of(self):
        self.assert_result(Code.SUCCESS, checks.tick(250, 4000), '4000 us')
        self.assert_result(Code.WARNING, checks.tick(100, 10000), 'HZ=100')
        self.assert_result(Code.WARNING, checks.tick(None, 4000), '4000 us')

    def test_packages_known_to_break_are_warned_of(self):
        self.assert_result(
            Code.SUCCESS, checks.traps({'SQLAlchemy': '2.0.58'})
        )
        self.assert_result(
            Code.WARNING, checks.traps({'SQLAlchemy': '2.1.9'}), '<2.1'
        )
        self.assert_result(
            Code.WARNING, checks.traps({'placement': '1.0'}), 'PyPI'
        )

    def test_networks_that_go_astray_are_a_warning(self):
        self.assert_result(
            Code.WARNING,
            checks.networks(['network a floods', 'network b floods']),
            'network a floods; network b floods',
        )
        self.assert_result(Code.SUCCESS, checks.networks([]))


class FlavorsTest(base.TestCase):
    def test_wrong_flavors_are_a_warning_that_names_them(self):
        result = checks.flavors({f'f{n}': [f'wrong {n}'] for n in range(5)})
        self.assertEqual(upgradecheck.Code.WARNING, result.code)
        self.assertIn('5 flavors', result.details)
        self.assertIn('flavor f0: wrong 0', result.details)
        self.assertNotIn('f4', result.details)

    def test_no_fault_succeeds(self):
        self.assertEqual(upgradecheck.Code.SUCCESS, checks.flavors({}).code)
