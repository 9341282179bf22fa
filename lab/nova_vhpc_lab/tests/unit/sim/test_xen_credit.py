# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import random
import unittest

from nova_vhpc_lab.sim import host, programs
from nova_vhpc_lab.sim.kernels import CoScheduling, XenCredit

#: dom0: short work for the others' I/O, which preempts them.
_DOM0 = programs.Sleep(100, 10_000, spread=2.0)


def _xen(cpus, seed=1, **settings):
    settings.setdefault('ratelimit_us', 0)
    return host.Host(cpus, seed=seed, kernel=XenCredit(**settings))


def _cpus(simulated, vm):
    """Return how many CPUs a VM had since the host started."""
    return sum(simulated.counters(vm).run_us) / simulated.now_us


def _start_apart(simulated, vms, seed=1):
    """Start VMs at random times within two periods of the scheduler."""
    chance = random.Random(seed)
    numbers = []
    for program, vcpus in vms:
        numbers.append(simulated.add_vm(program, vcpus))
        simulated.advance(simulated.now_us + chance.randrange(60_000))
    return numbers


def _gangs(number, vcpus, work_us=500):
    return [(programs.Spin(work_us), vcpus)] * number


class CreditTest(unittest.TestCase):
    def test_new_weight_takes_effect(self):
        simulated = _xen(2)
        vms = [simulated.add_vm(programs.Run(), 2) for _ in range(2)]
        simulated.set_weight(vms[0], 2 * 1024)
        simulated.advance(10_000_000)
        self.assertAlmostEqual(4 / 3, _cpus(simulated, vms[0]), delta=0.03)

    def test_weight_counts_per_vcpu(self):
        simulated = _xen(4)
        wide, narrow = (simulated.add_vm(programs.Run(), n) for n in (6, 2))
        simulated.advance(20_000_000)
        self.assertAlmostEqual(3.0, _cpus(simulated, wide), delta=0.05)
        self.assertAlmostEqual(1.0, _cpus(simulated, narrow), delta=0.05)

    def test_cpu_time_that_a_vm_cannot_use_goes_to_the_others(self):
        simulated = _xen(2)
        heavy = simulated.add_vm(programs.Run(), 1, weight=8 * 1024)
        others = [simulated.add_vm(programs.Run(), 1) for _ in range(2)]
        simulated.advance(20_000_000)
        self.assertAlmostEqual(1.0, _cpus(simulated, heavy), delta=0.02)
        for vm in others:
            self.assertAlmostEqual(0.5, _cpus(simulated, vm), delta=0.03)

    def test_quota_is_a_cap_that_holds_on_an_idle_host(self):
        simulated = _xen(2)
        vm = simulated.add_vm(programs.Run(), 2, bandwidth=(100_000, 30_000))
        simulated.advance(20_000_000)
        self.assertAlmostEqual(0.6, _cpus(simulated, vm), delta=0.02)
        simulated.set_bandwidth(vm, 100_000, -1)
        before_us = sum(simulated.counters(vm).run_us)
        simulated.advance(22_000_000)
        after_us = sum(simulated.counters(vm).run_us)
        self.assertAlmostEqual(4e6, after_us - before_us, delta=1e5)

    def test_idle_cpus_take_work_that_waits_elsewhere(self):
        simulated = _xen(4)
        vm = simulated.add_vm(programs.Run(), 4, allowed_cpus=frozenset({3}))
        simulated.set_pins(vm, (frozenset(range(4)),) * 4)
        sleeper = simulated.add_vm(programs.Sleep(100, 5_000), 4)
        simulated.advance(1_000_000)
        self.assertEqual({0, 1, 2, 3}, set(simulated.counters(vm).cpus))
        self.assertGreater(
            _cpus(simulated, vm) + _cpus(simulated, sleeper), 3.8
        )

    def test_vcpus_that_woke_up_run_at_once(self):
        """BOOST: hogs that have all credits cannot make a sleeper wait."""
        simulated = _xen(2)
        for _ in range(3):
            simulated.add_vm(programs.Run(), 2)
        sleeper = simulated.add_vm(programs.Sleep(100, 5_000), 1)
        simulated.advance(20_000_000)
        self.assertLess(simulated.counters(sleeper).latency_p99_us, 50)

    def test_ratelimit_delays_vcpus_that_woke_up(self):
        latencies_us = []
        for ratelimit_us in (0, 1_000):
            simulated = _xen(1, slice_us=3_000, ratelimit_us=ratelimit_us)
            for _ in range(3):
                simulated.add_vm(programs.Run(), 1)
            sleeper = simulated.add_vm(programs.Sleep(100, 5_000), 1)
            simulated.advance(20_000_000)
            latencies_us.append(simulated.counters(sleeper).latency_p99_us)
        self.assertLess(latencies_us[0], 50)
        self.assertTrue(500 < latencies_us[1] <= 1_050, latencies_us)

    def test_vcpus_that_never_sleep_run_whole_slices(self):
        simulated = _xen(1)
        vms = [simulated.add_vm(programs.Run(), 1) for _ in range(4)]
        simulated.advance(10_000_000)
        runs = sum(simulated.counters(vm).runs[0] for vm in vms)
        self.assertLessEqual(runs, 10_000_000 / 30_000 + 4)

    def test_same_seed_gives_same_counters(self):
        self.assertEqual(_mixed(3), _mixed(3))
        self.assertNotEqual(_mixed(3), _mixed(4))

    def test_all_of_a_busy_host_is_given_out(self):
        total = sum(sum(one.run_us) for one in _mixed(3)) / 4e6
        self.assertGreater(total, 7.8)
        self.assertLessEqual(total, 8.0001)


def _mixed(seed):
    """Run all kinds of programs, with writes and an end between them."""
    simulated = host.Host(8, seed=seed, sockets=2, kernel=XenCredit())
    spin = simulated.add_vm(programs.Spin(10), 4)
    block = simulated.add_vm(programs.Block(500), 4)
    vms = [
        spin,
        block,
        simulated.add_vm(programs.SpinThenBlock(200, 50), 4),
        simulated.add_vm(programs.Sleep(200, 5_000), 2),
        simulated.add_vm(programs.Serve(), 2),
        simulated.add_vm(programs.Io(phase_us=1e6, compute_us=1e6), 2),
        simulated.add_vm(programs.Run(), 3, bandwidth=(20_000, 10_000)),
        simulated.add_vm(programs.Run(), 4),
        simulated.add_outside_load(programs.Run(), 1, grouped=False),
    ]
    simulated.advance(1_000_000)
    simulated.set_coscheduling(spin, CoScheduling.STRICT)
    simulated.set_slice(spin, 3_000)
    simulated.set_pins(vms[2], tuple(frozenset({cpu}) for cpu in range(4)))
    simulated.advance(2_000_000)
    simulated.set_weight(spin, 4_096)
    simulated.remove_vm(block)
    simulated.advance(4_000_000)
    return [simulated.counters(vm) for vm in vms]


class TimeSliceTest(unittest.TestCase):
    """The ATC paper's section II.B: spinning VMs on over-committed CPUs."""

    def _run(self, slice_us, switch_us=20.0, **settings):
        """Return progress and spin latency of four VMs of 16 on 8 CPUs."""
        simulated = host.Host(
            8,
            seed=1,
            kernel=XenCredit(slice_us, ratelimit_us=0, **settings),
            switch_us=switch_us,
        )
        simulated.add_outside_load(_DOM0, 8)
        vms = _start_apart(simulated, _gangs(4, 16))
        simulated.advance(10_000_000)
        counters = [simulated.counters(vm) for vm in vms]
        return (
            sum(one.progress_us for one in counters),
            sum(one.barrier_wait_us for one in counters)
            / sum(one.barriers for one in counters),
        )

    def test_shorter_slices_are_better_until_switches_cost_more(self):
        results = [
            self._run(slice_us) for slice_us in (30_000, 6_000, 1_000, 300)
        ]
        progress, latencies_us = zip(*results, strict=True)
        self.assertEqual(sorted(progress), list(progress))
        self.assertEqual(
            sorted(latencies_us, reverse=True), list(latencies_us)
        )
        self.assertGreater(progress[-1], 10 * progress[0])
        shortest, latency_us = self._run(50)
        self.assertLess(shortest, progress[-1])
        self.assertLess(latency_us, latencies_us[-1])

    def test_alone_a_vm_loses_next_to_nothing(self):
        simulated = _xen(8)
        vm = simulated.add_vm(programs.Spin(500), 8)
        simulated.advance(10_000_000)
        progress = simulated.counters(vm).progress_us / 10_000_000
        self.assertGreater(progress, 0.9)

    def test_ratelimit_is_the_shortest_slice(self):
        simulated = _xen(1, slice_us=100, ratelimit_us=1_000)
        vms = [simulated.add_vm(programs.Run(), 1) for _ in range(2)]
        simulated.advance(1_000_000)
        runs = sum(simulated.counters(vm).runs[0] for vm in vms)
        self.assertLessEqual(runs, 1_001)

    def test_each_vm_has_its_own_slice(self):
        simulated = _xen(1, accounting_follows=False)
        vms = [simulated.add_vm(programs.Run(), 1) for _ in range(3)]
        simulated.set_slice(vms[0], 1_000)
        simulated.advance(30_000_000)
        lengths_us = []
        for vm in vms:
            counters = simulated.counters(vm)
            self.assertAlmostEqual(1 / 3, _cpus(simulated, vm), delta=0.02)
            lengths_us.append(counters.run_us[0] / counters.runs[0])
        self.assertLess(lengths_us[0], 0.6 * min(lengths_us[1:]))

    def test_slices_of_vms_act_only_if_accounting_follows(self):
        """Else vCPUs without credits wait for the end of 30 ms anyway."""
        progress = {}
        for slice_us, follows in (
            (30_000, True),
            (1_000, True),
            (1_000, False),
        ):
            simulated = _xen(8, accounting_follows=follows)
            simulated.add_outside_load(_DOM0, 8)
            vms = _start_apart(simulated, _gangs(4, 16))
            for vm in vms:
                simulated.set_slice(vm, slice_us)
            simulated.advance(10_000_000)
            progress[slice_us, follows] = sum(
                simulated.counters(vm).progress_us for vm in vms
            )
        self.assertGreater(progress[1_000, True], 5 * progress[30_000, True])
        self.assertLess(progress[1_000, False], 2 * progress[30_000, True])


class CoSchedulingTest(unittest.TestCase):
    def _run(self, mode, others=()):
        """Run two gangs and others; return all counters."""
        simulated = host.Host(8, seed=1, kernel=XenCredit())
        simulated.add_outside_load(_DOM0, 8)
        vms = _start_apart(simulated, [*_gangs(2, 8), *others])
        for vm in vms[:2]:
            simulated.set_coscheduling(vm, mode)
        simulated.advance(10_000_000)
        return [simulated.counters(vm) for vm in vms]

    def test_siblings_run_together(self):
        hogs = [(programs.Run(), 8)] * 2
        apart, relaxed, strict = (
            self._run(mode, hogs) for mode in CoScheduling
        )
        for gang in (0, 1):
            for together in (relaxed, strict):
                self.assertGreater(
                    together[gang].progress_us, 10 * apart[gang].progress_us
                )
                self.assertLess(
                    together[gang].barrier_wait_us / together[gang].barriers,
                    apart[gang].barrier_wait_us / apart[gang].barriers / 10,
                )

    def test_strict_gangs_alternate(self):
        """Relaxed ones get out of step with each other."""
        _, relaxed, strict = (
            sum(one.progress_us for one in self._run(mode, _gangs(2, 8)))
            for mode in CoScheduling
        )
        self.assertLess(relaxed, strict)

    def test_servers_wait_for_gangs(self):
        server = [(programs.Serve(16_000), 8)]
        apart, relaxed, strict = (
            self._run(mode, server)[-1] for mode in CoScheduling
        )
        for together in (relaxed, strict):
            self.assertLess(apart.response_us[0], together.response_us[0])
            self.assertLess(apart.response_us[1], together.response_us[1])


class KernelsTest(unittest.TestCase):
    def test_time_slices_of_vms_are_only_of_xen(self):
        simulated = host.Host(2)
        vm = simulated.add_vm(programs.Run(), 2)
        self.assertRaises(ValueError, simulated.set_slice, vm, 1_000)
        self.assertRaises(
            ValueError,
            simulated.set_coscheduling,
            vm,
            CoScheduling.STRICT,
        )
        self.assertRaises(ValueError, _xen(1).set_idle, 0, True)
