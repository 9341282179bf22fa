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

"""The controller with gang windows on simulated hosts."""

from nova_vhpc.control.gang import reserved_cpus
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control import simulated_host
from nova_vhpc.tests.unit.control.simulated_host import Host, Vm, hogs


def gangs(number, size):
    return [Vm(f'c{n}', size, f'c{n}') for n in range(number)]


def others(host, got):
    return sum(got[vm.name] for vm in host.vms if not vm.parallel)


def pins(vm):
    return set(vm.in_force.vcpu_pins)


class TestTwoCpus(base.TestCase):
    """As the lab measures on real guests, except that switches are free."""

    def test_three_gangs_progress_equally_and_efficiently(self):
        host = Host(2, gangs(3, 2))
        got = host.run(4_000, 3_000)
        self.assertGreater(host.efficiency(got), 0.9)
        self.assertGreater(min(got.values()), 0.8 * max(got.values()))

    def test_hogs_get_nine_tenths_of_their_time_under_stock_linux(self):
        for sizes in ([1], [2, 2]):
            results = []
            for managed in (False, True):
                host = Host(2, [*gangs(2, 2), *hogs(sizes)], managed)
                results.append(others(host, host.run(5_000, 4_000)))
            self.assertGreater(results[1], 0.9 * results[0])


class TestWideHost(base.TestCase):
    """Two hogs of one vCPU beside gangs narrower than the host."""

    def run_host(self, managed=True, reserve=True):
        host = Host(8, [*gangs(4, 3), *hogs([1, 1])], managed)
        if not reserve:
            host.slices.reserved_cpus = reserved_cpus.ReservedCpus(10**9)
        return host, host.run(13_000, 4_000)

    def test_cpus_are_reserved_for_hogs_and_all_vms_gain(self):
        stock, got_stock = self.run_host(managed=False)
        narrow, got_narrow = self.run_host(reserve=False)
        wide, got_wide = self.run_host()
        self.assertEqual({6, 7}, wide.slices.reserved_cpus.cpus)
        for vm in wide.vms:
            if vm.parallel:
                self.assertFalse({6, 7} & wide.cpus_of(vm))
        for host, got in ((stock, got_stock), (narrow, got_narrow)):
            self.assertGreater(
                wide.efficiency(got_wide), 1.2 * host.efficiency(got)
            )
            self.assertGreater(
                others(wide, got_wide), 0.95 * others(host, got)
            )

    def test_gangs_use_all_cpus_after_the_hogs_end(self):
        host, _ = self.run_host()
        for vm in [vm for vm in host.vms if not vm.parallel]:
            host.end(vm)
        got = host.run(25_000, 2_000)
        self.assertEqual(set(), host.slices.reserved_cpus.cpus)
        used = set().union(*(host.cpus_of(vm) for vm in host.vms))
        self.assertEqual(set(range(8)), used)
        self.assertGreater(host.efficiency(got), 0.7)


class TestNarrowBesideWide(base.TestCase):
    """Unmanaged busy VMs of one vCPU, and of one vCPU per CPU.

    All weigh the same, so the one vCPU has a whole CPU under stock Linux.
    """

    def others(self, managed, gangs, narrow=1):
        """Return the host, and the progress of each unmanaged VM."""
        host = Host(8, [*gangs, *hogs([1] * narrow + [8])], managed)
        got = host.run(13_000, 4_000)
        return host, {
            vm.name: got[vm.name] for vm in host.vms if not vm.parallel
        }

    def check(self, make_gangs, narrow=1):
        _, stock = self.others(False, make_gangs(), narrow)
        host, managed = self.others(True, make_gangs(), narrow)
        for name, got in managed.items():
            self.assertGreater(got, 0.88 * stock[name], name)
        return host

    def test_hogs_keep_their_time_beside_gangs_narrower_than_the_host(self):
        for narrow in (1, 2):
            host = self.check(lambda: gangs(4, 4), narrow)
            self.assertNotEqual(set(), host.slices.reserved_cpus.cpus)
            got = host.run(0, 4_000)
            # Under stock Linux the efficiency is 0.1 or less.
            self.assertGreater(host.efficiency(got), 0.3)

    def test_hogs_keep_their_time_beside_gangs_as_wide_as_the_host(self):
        # The narrow VM needs a CPU of its own, the gangs need all CPUs.
        self.check(lambda: gangs(2, 8))

    def test_narrow_hog_keeps_its_cpu_before_cpus_are_reserved(self):
        host = Host(8, [*gangs(4, 4), *hogs([1, 8])])
        got = host.run(5_000, 4_000)
        self.assertEqual(set(), host.slices.reserved_cpus.cpus)
        self.assertGreater(got['h0'], 0.85)


class TestSleepingVcpus(base.TestCase):
    """Parallel VMs of which only some vCPUs, or none, want to run."""

    def run_host(self, managed):
        # If pins counted all vCPUs, the busy ones would share a few CPUs.
        host = Host(
            8,
            [
                *(Vm(f'p{n}', 8, f'p{n}', busy=2) for n in range(3)),
                *(Vm(f'i{n}', 4, f'i{n}', busy=0) for n in range(3)),
                Vm('c', 2, 'c'),
            ],
            managed,
        )
        return host, host.run(15_000, 2_000)

    def test_no_vm_progresses_less_than_under_stock_linux(self):
        _, stock = self.run_host(False)
        host, got = self.run_host(True)
        for name, got_on in got.items():
            self.assertGreaterEqual(got_on, 0.9 * stock[name], name)
        for vm in host.vms:
            if vm.name.startswith('p'):
                self.assertEqual({frozenset(range(8))}, pins(vm))
            elif vm.name.startswith('i'):
                self.assertEqual(4, len(pins(vm)))


class TestBoundVms(base.TestCase):
    """Unmanaged busy VMs that are bound to some CPUs."""

    first, last = frozenset(range(8)), frozenset(range(8, 16))

    def run_host(self, managed, gangs, busy):
        host = Host(16, [*gangs, *busy], managed)
        return host, host.run(13_000, 4_000)

    def test_reserved_cpus_are_among_those_the_vms_are_bound_to(self):
        for cpus in (self.first, self.last):
            results = []
            for managed in (False, True):
                host, got = self.run_host(
                    managed,
                    gangs(8, 3),
                    [Vm(f'h{n}', 1, cpus=cpus) for n in range(4)],
                )
                results.append((host.efficiency(got), others(host, got)))
            clear = host.slices.reserved_cpus.cpus
            self.assertEqual(4, len(clear))
            self.assertLessEqual(clear, cpus)
            self.assertGreater(results[1][0], 1.2 * results[0][0])
            self.assertGreater(results[1][1], 0.95 * results[0][1])

    def test_gang_runs_on_cpus_without_bound_vms(self):
        host, got = self.run_host(
            True, gangs(1, 8), [Vm('h', 8, cpus=self.first)]
        )
        (gang, _) = host.vms
        self.assertEqual(self.last, host.cpus_of(gang))
        self.assertGreater(got['c0'], 0.9)

    def test_bound_vm_keeps_its_time_beside_a_gang_as_wide_as_the_host(self):
        # A gang as wide as the host leaves no CPU free.
        results = []
        for managed in (False, True):
            _, got = self.run_host(
                managed, gangs(1, 16), [Vm('h', 8, cpus=self.first)]
            )
            results.append(got['h'])
        self.assertGreater(results[1], 0.9 * results[0])

    def test_gangs_without_bound_vms_on_their_cpus_do_not_pause(self):
        # There are two gangs in each half, and the VM is in the first.
        host, got = self.run_host(
            True, gangs(4, 8), [Vm('h', 8, cpus=self.first)]
        )
        for vm in host.vms:
            if vm.parallel and host.cpus_of(vm) == self.last:
                self.assertGreater(got[vm.name], 0.45)


class TestCompare(base.TestCase):
    def test_host_without_reserved_cpus_has_no_figures(self):
        """The figures of the documentation come from this comparison."""
        self.assertIsNone(simulated_host.compare(14))
