# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows by the real controller on simulated hosts."""

from nova_vhpc.tests import base
from nova_vhpc_lab.sim import programs
from nova_vhpc_lab.sim.host_spec import VmSpec
from nova_vhpc_lab.tests.unit.sim.running_host import RunningHost, gangs, hogs


class TestTwoCpus(base.TestCase):
    """As the lab measures on real guests."""

    def test_three_gangs_progress_equally_and_efficiently(self):
        host = RunningHost(2, gangs(3, 2))
        got = host.run(4, 6)
        self.assertGreater(host.efficiency(got), 0.8)
        self.assertGreater(min(got.values()), 0.8 * max(got.values()))

    def test_hogs_get_nine_tenths_of_their_time_under_stock_linux(self):
        for sizes in ([1], [2, 2]):
            results = []
            for managed in (False, True):
                host = RunningHost(2, [*gangs(2, 2), *hogs(sizes)], managed)
                results.append(host.others(host.run(5, 5)))
            self.assertGreater(results[1], 0.9 * results[0])


class TestNarrowHogs(base.TestCase):
    """Two hogs of one vCPU beside gangs narrower than the host."""

    def run_host(self, managed):
        host = RunningHost(8, [*gangs(4, 3), *hogs([1, 1])], managed)
        return host, host.run(20, 6)

    def test_gangs_gain_and_hogs_keep_their_time(self):
        stock, got_stock = self.run_host(False)
        host, got = self.run_host(True)
        self.assertGreater(
            host.efficiency(got), 1.2 * stock.efficiency(got_stock)
        )
        self.assertGreater(host.others(got), 0.95 * stock.others(got_stock))

    def test_gangs_use_all_cpus_after_the_hogs_end(self):
        host, got_before = self.run_host(True)
        for name in ('h0', 'h1'):
            host.host.remove_vm(host.numbers[name])
        got = host.run(25, 3)
        self.assertGreater(
            host.efficiency(got), 1.05 * host.efficiency(got_before)
        )


class TestStarvedGangs(base.TestCase):
    """Gangs beside a VM as wide as the host that did not opt in."""

    def test_gangs_have_what_stock_linux_gives_them(self):
        cpus = []
        for managed in (False, True):
            host = RunningHost(4, [*gangs(2, 4), *hogs([4, 1])], managed)
            host.run(15, 0)
            begin = host.received_us()
            host.run(0, 10)
            cpus.append(
                {
                    name: received - begin[name]
                    for name, received in host.received_us().items()
                }
            )
        for name, stock in cpus[0].items():
            self.assertGreater(cpus[1][name], 0.9 * stock, name)


class TestSleepingVcpus(base.TestCase):
    """VMs that opted in and of which only some vCPUs, or none, run."""

    def run_host(self, managed):
        # If pins counted all vCPUs, the busy ones would share a few CPUs.
        host = RunningHost(
            8,
            [
                *(
                    VmSpec(
                        f'{name}{n}',
                        'spins',
                        programs.Spin(500),
                        vcpus,
                        True,
                        f'{name}{n}',
                        busy=busy,
                    )
                    for name, vcpus, busy in (('p', 8, 2), ('i', 4, 0))
                    for n in range(3)
                ),
                *gangs(1, 2),
            ],
            managed,
        )
        return host, host.run(15, 3)

    def test_no_vm_progresses_less_than_under_stock_linux(self):
        _, stock = self.run_host(False)
        _, got = self.run_host(True)
        for name, progress in got.items():
            self.assertGreaterEqual(progress, 0.9 * stock[name], name)


class TestBoundVms(base.TestCase):
    """Busy VMs that did not opt in and are bound to some CPUs."""

    first = frozenset(range(8))

    def run_host(self, managed, gangs, busy):
        host = RunningHost(16, [*gangs, *busy], managed, sockets=2)
        return host, host.run(13, 4)

    def test_gang_is_not_held_up_if_bound_vms_leave_it_cpus(self):
        _, got = self.run_host(
            True, gangs(1, 8), hogs([8], allowed_cpus=self.first)
        )
        self.assertGreater(got['c0'], 0.9)

    def test_bound_vm_keeps_its_time_beside_a_gang_as_wide_as_the_host(self):
        results = []
        for managed in (False, True):
            _, got = self.run_host(
                managed, gangs(1, 16), hogs([8], allowed_cpus=self.first)
            )
            results.append(got['h0'])
        self.assertGreater(results[1], 0.9 * results[0])


class TestMixedWidths(base.TestCase):
    """All VMs weigh the same, so a vCPU of a narrow VM weighs more."""

    def test_each_vm_progresses_by_its_width(self):
        vms = [
            VmSpec(
                f'{size}.{n}',
                'spins',
                programs.Spin(500),
                size,
                True,
                f'{size}.{n}',
            )
            for size in (2, 4)
            for n in range(4)
        ]
        got = RunningHost(16, vms).run(8, 4)
        for vm in vms:
            self.assertGreater(got[vm.name], 0.85 if vm.vcpus == 2 else 0.4)
