# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Members with dedicated CPUs, on Nova's real libvirt driver.

The driver reports only ``cpu_shared_set`` as the CPUs of a compute node, but
counts the vCPUs of all guests as used, pinned ones included.
"""

import contextlib
import io
import json

from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.libvirt import base as libvirt_base

from nova_vhpc.cli import explain
from nova_vhpc.tests.functional import patience, sdk
from nova_vhpc.tests.functional.scheduler import base

PINNED = {'hw:cpu_policy': 'dedicated'}
MIXED = {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0'}
OPENMP = {'vhpc:workload': 'parallel', 'vhpc:paradigm': 'openmp'}


def start(test, shared, dedicated, name='compute1', **cpus):
    """Start a compute service whose host has two sets of CPUs.

    :param cpus: ``cpu_nodes`` and ``cpu_cores`` of HostInfo.
    """
    test.flags(
        group='compute',
        cpu_shared_set=shared,
        cpu_dedicated_set=dedicated,
    )
    test.start_compute(
        hostname=name,
        host_info=fakelibvirt.HostInfo(
            cpu_sockets=1, cpu_threads=1, kB_mem=16 << 20, **cpus
        ),
    )


class PinnedTest(
    patience.Patience, libvirt_base.ServersTestBase, base.Publishing
):
    """One host with eight CPUs, which OpenMP members do not overcommit."""

    microversion = 'latest'

    def setUp(self):
        base.configure(self, ['NUMATopologyFilter', 'VirtualClusterFilter'])
        self.flags(initial_cpu_allocation_ratio=4.0)
        super().setUp()

    def start(self, shared, dedicated):
        """Start the host with two sets of CPUs."""
        start(self, shared, dedicated, cpu_nodes=2, cpu_cores=4)

    def boot(self, vcpu, extra_spec, state='ACTIVE'):
        """Boot one server, and check nova-vhpc-explain's prediction."""
        flavor_id = self._create_flavor(
            vcpu=vcpu, memory_mb=512, disk=1, extra_spec=extra_spec
        )
        if OPENMP.items() <= extra_spec.items():
            reason = self.explained_reason(flavor_id)
            self.assertEqual(state == 'ERROR', reason is not None, reason)
        return self._create_server(
            flavor_id=flavor_id, networks='none', expected_state=state
        )

    def explained_reason(self, flavor_id):
        """Return why the host takes no member; None if it takes one."""
        cloud = sdk.connect(self.api_fixture, self.placement.fixture.endpoint)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            explain.main(['--flavor', flavor_id, '--json'], cloud)
        (host,) = json.loads(out.getvalue())['hosts']
        return host['reason']

    @contextlib.contextmanager
    def part(self, name):
        """Run a part of a test, and delete the servers that it made."""
        with self.subTest(name):
            yield
        for server in self.api.get_servers():
            self._delete_server(server)

    def test_pinned_members_fill_a_host_with_dedicated_cpus_only(self):
        self.start(None, '0-7')
        self.boot(4, {**OPENMP, **PINNED})
        self.boot(4, {**OPENMP, **PINNED})

    def test_host_has_four_shared_and_four_dedicated_cpus(self):
        self.start('0-3', '4-7')
        with self.part('pinned guests leave the shared CPUs free'):
            self.boot(4, PINNED)
            self.boot(4, OPENMP)
            # Placement would allow 16 VCPUs; the filter allows one per CPU.
            self.boot(1, OPENMP, 'ERROR')
        with self.part('guests on shared CPUs leave dedicated ones free'):
            for _ in range(3):
                self.boot(4, {})
            self.boot(4, {**OPENMP, **PINNED})
        # For each uplink, Nova's fallback has a candidate with shared CPUs.
        bridges = [base.shared(f'br{n}', f'eth{n}') for n in range(2)]
        self.publish('compute1', *bridges)
        for _ in range(4):
            server = self.boot(1, {**base.SHARED, **OPENMP, **PINNED})
            claimed = {}
            for held in self._get_allocations_by_server_uuid(
                server['id']
            ).values():
                claimed |= held['resources']
            self.assertEqual(1, claimed['PCPU'], claimed)
            self.assertNotIn('VCPU', claimed)

    def test_mixed_members_use_both_kinds_of_cpus(self):
        self.start('0-1,4-5', '2-3,6-7')
        with self.part('their shared vCPUs are counted'):
            self.boot(3, OPENMP)
            # Two of its vCPUs get dedicated CPUs, the third the fourth shared
            # CPU.
            self.boot(3, {**OPENMP, **MIXED})
            self.boot(1, OPENMP, 'ERROR')
        with self.part('isolated emulator threads use no shared CPU'):
            mixed = {**MIXED, 'hw:emulator_threads_policy': 'isolate'}
            for _ in range(2):
                self.boot(2, {**OPENMP, **mixed})
            # Two of four shared CPUs are free.
            self.boot(3, OPENMP, 'ERROR')
            self.boot(2, OPENMP)
        self.boot(3, {**OPENMP, **MIXED})
        self.boot(3, {**OPENMP, **MIXED})
        # Two shared CPUs are left, but no dedicated one.
        self.boot(2, {**OPENMP, **MIXED}, 'ERROR')

    def test_pinned_members_use_shared_cpus_if_none_are_dedicated(self):
        # Nova then claims VCPUs, and pins the guests to their CPUs.
        self.start(None, None)
        self.boot(4, {**OPENMP, **PINNED})
        self.boot(4, {**OPENMP, **PINNED})

    def test_isolated_emulator_threads_use_a_dedicated_cpu_each(self):
        self.start('0,4', '1-3,5-7')
        isolate = {'hw:emulator_threads_policy': 'isolate'}
        for _ in range(2):
            self.boot(2, {**OPENMP, **PINNED, **isolate})
        # None of the six dedicated CPUs is left.
        self.boot(1, {**OPENMP, **PINNED}, 'ERROR')


class PlannedTest(
    patience.Patience, libvirt_base.ServersTestBase, base.Publishing
):
    """Two hosts that differ only in CPUs which the plan must not overlook."""

    microversion = 'latest'

    def setUp(self):
        base.configure(
            self,
            [
                'ServerGroupAffinityFilter',
                'NUMATopologyFilter',
                'VirtualClusterFilter',
            ],
        )
        super().setUp()

    def planned(self, extra_specs, tight, roomy):
        """Boot three members with affinity, and return their hosts.

        :param tight: shared and dedicated CPUs of a host that lacks a CPU
            for the third member.
        :param roomy: the same of a host with enough CPUs.
        """
        for name, shared, dedicated in (
            ('tight', *tight),
            ('roomy', *roomy),
        ):
            start(self, shared, dedicated, name, cpu_nodes=1, cpu_cores=15)
            self.publish(name)
        flavor_id = self._create_flavor(
            vcpu=3, memory_mb=256, disk=1, extra_spec={**OPENMP, **extra_specs}
        )
        group = {'name': 'cluster', 'policy': 'affinity'}
        server = self._build_server(
            name='member', flavor_id=flavor_id, networks='none'
        )
        server['min_count'] = server['max_count'] = 3
        self.api.post_server(
            {
                'server': server,
                'os:scheduler_hints': {
                    'group': self.api.post_server_groups(group)['id']
                },
            }
        )
        return {
            self._wait_for_state_change(found, 'ACTIVE')[
                'OS-EXT-SRV-ATTR:host'
            ]
            for found in self.api.get_servers(detail=False)
        }

    def test_plan_counts_dedicated_cpus_of_mixed_members(self):
        tight, roomy = ('0-3', '6-9'), ('0-4', '6-11')
        self.assertEqual({'roomy'}, self.planned(MIXED, tight, roomy))

    def test_plan_counts_cpus_of_emulator_threads(self):
        isolate = {'hw:emulator_threads_policy': 'isolate'}
        tight, roomy = ('0-2', '3-13'), ('0-2', '3-14')
        self.assertEqual(
            {'roomy'}, self.planned({**PINNED, **isolate}, tight, roomy)
        )
