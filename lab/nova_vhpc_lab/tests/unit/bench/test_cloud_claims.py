# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The ATC paper's figures beside simulated clouds."""

from typing import Any

from oslotest import base

from nova_vhpc_lab.bench import cloud_claims


def figures(progress: float, **other: Any) -> dict[str, Any]:
    return {
        'geomean': progress,
        'clusters': {'VC1': progress, 'VC10': progress, 'VC2': progress},
        'independents': {'memory': progress, 'disk': progress},
        'response_ratio': None,
        'seeds': 3,
        **other,
    }


def document(kernel: str, **policies: dict[str, Any]) -> dict[str, Any]:
    return {
        'kernel': kernel,
        'seconds': 10.0,
        'skew_ms': 1.0,
        'scenarios': {
            name: {
                policy.replace('_', '-'): one
                for policy, one in policies.items()
            }
            for name in ('atc-a-2', 'atc-a-16', 'atc-b', 'atc-mixed')
        },
    }


XEN = document('xen', stock=figures(0.01), atc_30ms=figures(0.04))
LINUX = document('linux', stock=figures(0.1), ours=figures(0.2))


class CloudClaimsTest(base.BaseTestCase):
    def test_times_are_relative_to_stock_of_the_same_kernel(self) -> None:
        text = '\n'.join(cloud_claims.section([XEN, LINUX]))
        self.assertIn('   * - VC1\n     - 0.25\n     - 0.50\n   * - VC2', text)

    def test_ours_is_also_compared_with_xen(self) -> None:
        text = '\n'.join(cloud_claims.section([XEN, LINUX]))
        self.assertIn('``atc-b`` take 0.05 of the time', text)

    def test_numbers_of_hosts_are_in_order(self) -> None:
        lines = cloud_claims.section([LINUX])
        self.assertLess(
            lines.index('   * - 2 hosts'), lines.index('   * - 16 hosts')
        )

    def test_a_row_that_one_kernel_lacks_has_an_empty_cell(self) -> None:
        xen = document('xen', stock=figures(0.01), cs=figures(0.02))
        for policy in xen['scenarios']['atc-mixed'].values():
            policy['independents'] = {'memory': policy['geomean']}
        lines = cloud_claims.section([xen, LINUX])
        at = lines.index('   * - disk (bonnie++)')
        self.assertEqual(['     -', '     - 0.50'], lines[at + 1 : at + 3])

    def test_a_policy_that_a_scenario_lacks_is_left_out_there_only(
        self,
    ) -> None:
        linux = document('linux', stock=figures(0.1), ours=figures(0.2))
        linux['scenarios']['atc-b'].pop('ours')
        text = '\n'.join(cloud_claims.section([linux]))
        self.assertIn('Figure 10', text)
        self.assertNotIn('Figure 11', text)

    def test_no_clouds_make_no_section(self) -> None:
        self.assertEqual([], cloud_claims.section([]))
