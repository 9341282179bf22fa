# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Policies under Xen: what the ATC paper's sections III and IV say of them."""

import dataclasses
import functools
import unittest

from nova_vhpc.control import model
from nova_vhpc_lab.sim import (
    agent,
    coscheduler,
    host,
    measurement,
    programs,
    sensor,
    xen_trials,
    xen_writer,
)
from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.sim.host_spec import HostSpec, VmSpec
from nova_vhpc_lab.sim.kernels import LINUX, XenCredit


@functools.cache
def _measure(policy_name, is_mixed):
    policy = xen_trials.POLICIES[policy_name]
    spec = (
        xen_trials.mixed(2_000, policy.other_slice_us)
        if is_mixed
        else xen_trials.parallel_only(2_000)
    )
    return policy.measure(spec, 1, 6.0, 6.0).vms


def _progress(vms):
    return sum(
        vm.progress for name, vm in vms.items() if name.startswith('parallel')
    )


class PolicyTest(unittest.TestCase):
    def test_atc_is_faster_than_the_default_slice(self):
        """Section IV.B: 1.5 to 10 times."""
        slow, fast = (_measure(name, False) for name in ('credit', 'atc'))
        self.assertGreater(_progress(fast), 1.5 * _progress(slow))
        for name, vm in fast.items():
            self.assertLess(
                vm.barrier_wait_us, slow[name].barrier_wait_us / 1.5
            )

    def test_atc_is_faster_than_relaxed_coscheduling(self):
        slow, fast = (_measure(name, False) for name in ('cs', 'atc'))
        self.assertGreater(_progress(fast), _progress(slow))

    def test_coscheduling_is_faster_than_the_default_slice(self):
        slow, fast = (_measure(name, False) for name in ('credit', 'cs'))
        self.assertGreater(_progress(fast), 1.5 * _progress(slow))

    def test_atc_leaves_other_vms_nearly_as_they_were(self):
        before, after = (_measure(name, True) for name in ('credit', 'atc'))
        self.assertGreater(_progress(after), 1.5 * _progress(before))
        self.assertGreater(
            after['busy'].progress, 0.95 * before['busy'].progress
        )
        self.assertLess(
            after['web'].response_us, 1.5 * before['web'].response_us
        )

    def test_specified_slice_of_others_makes_parallel_vms_faster(self):
        """Section IV.C: ATC(6ms) against ATC(30ms)."""
        long, short = (_measure(name, True) for name in ('atc', 'atc-6ms'))
        self.assertGreater(_progress(short), _progress(long))
        self.assertLess(short['busy'].progress, long['busy'].progress)

    def test_coscheduling_makes_web_servers_wait(self):
        before, after = (_measure(name, True) for name in ('credit', 'cs'))
        self.assertGreater(
            after['web'].response_us, 2 * before['web'].response_us
        )
        self.assertLess(after['busy'].progress, before['busy'].progress)

    def test_all_parallel_vms_have_the_shortest_of_their_slices(self):
        """Algorithm 2; others keep DEFAULT, or what is specified."""
        spec = xen_trials.mixed(2_000, 6_000)
        simulated, numbers = measurement.start(spec, 1)
        agenda = Agenda(simulated)
        controlling = agent.Agent(
            simulated,
            agenda,
            spec,
            numbers,
            xen_trials.POLICIES['atc'].make_controller(),
            1,
        )
        agenda.run(3_000_000)
        slices_us = {
            name: plan.slice_us for name, plan in controlling.plan.vms.items()
        }
        self.assertEqual(slices_us['parallel0'], slices_us['parallel1'])
        self.assertLess(slices_us['parallel0'], 30_000)
        self.assertEqual(6_000, slices_us['web'])
        self.assertEqual(6_000, slices_us['busy'])
        self.assertEqual((), controlling.plan.ignored)

    def test_vslicer_and_dss_act_on_vms_with_io(self):
        for name in ('vslicer', 'dss'):
            policy = xen_trials.POLICIES[name]
            spec = xen_trials.mixed(2_000)
            simulated, numbers = measurement.start(spec, 1)
            agenda = Agenda(simulated)
            controlling = agent.Agent(
                simulated, agenda, spec, numbers, policy.make_controller(), 1
            )
            agenda.run(2_000_000)
            plans = controlling.plan.vms
            self.assertLess(plans['web'].slice_us, 30_000)
            self.assertIsNone(plans['busy'].slice_us)


class XenWriterTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.host = host.Host(1, seed=1, kernel=XenCredit(ratelimit_us=0))
        self.numbers = {
            name: self.host.add_vm(programs.Run(), 1) for name in 'ab'
        }
        self.original = model.CpuTune(
            100_000, model.UNLIMITED, 1024, (frozenset({0}),)
        )
        self.in_force = dict.fromkeys('ab', self.original)
        self.writer = xen_writer.XenWriter(
            self.host, self.numbers, self.in_force
        )

    def _carry_out(self, slice_us, **fields):
        tune = dataclasses.replace(self.original, **fields)
        for name in 'ab':
            self.writer.carry_out(
                name,
                model.VmPlan(
                    name,
                    tune,
                    model.CpuTune(**fields) if fields else None,
                    slice_us,
                    model.Phase.COMPUTING,
                ),
            )

    def _runs(self, seconds=2):
        """Return how often VMs are put on a CPU."""

        def count():
            return sum(
                self.host.counters(number).runs[0]
                for number in self.numbers.values()
            )

        before = count()
        self.host.advance(self.host.now_us + seconds * 1_000_000)
        return count() - before

    def test_slice_acts_until_it_is_taken_back(self):
        by_default = self._runs()
        self._carry_out(1_000, period_us=1_000, quota_us=1_000)
        self.assertGreater(self._runs(), 10 * by_default)
        self._carry_out(None, period_us=100_000, quota_us=model.UNLIMITED)
        self.assertLess(self._runs(), 2 * by_default)

    def test_cap_stays_as_it_was(self):
        self.host.set_bandwidth(self.numbers['b'], 100_000, 20_000)
        self._carry_out(1_000, period_us=5_000, quota_us=1_000)
        self.host.advance(10_000_000)
        run_us = sum(self.host.counters(self.numbers['b']).run_us)
        self.assertAlmostEqual(0.2, run_us / 10_000_000, delta=0.02)

    def test_what_is_in_force_is_kept_current(self):
        self._carry_out(1_000, period_us=1_000, quota_us=1_000, shares=512)
        self.assertEqual(
            model.CpuTune(1_000, 1_000, 512, (frozenset({0}),)),
            self.in_force['a'],
        )


class CoSchedulerTest(unittest.TestCase):
    def _run(self, vms, until_us, **settings):
        simulated = host.Host(4, seed=1, kernel=XenCredit())
        simulated.add_outside_load(programs.Sleep(100, 10_000, 2.0), 4)
        self.host = simulated
        self.agenda = Agenda(simulated)
        self.numbers = [simulated.add_vm(vm, 4) for vm in vms]
        self.policy = coscheduler.CoScheduler(
            simulated,
            self.agenda,
            self.numbers,
            coscheduler.Settings(**settings),
        )
        self.agenda.run(until_us)

    def test_vm_alone_is_not_coscheduled(self):
        self._run([programs.Spin(500)], 2_000_000)
        self.assertEqual(frozenset(), self.policy.together)

    def test_vms_without_barriers_are_not_coscheduled(self):
        self._run([programs.Run(), programs.Sleep(100, 1_000)], 2_000_000)
        self.assertEqual(frozenset(), self.policy.together)

    def test_vms_that_wait_for_siblings_are_coscheduled_for_a_while(self):
        self._run(
            [programs.Spin(500), programs.Run(), programs.Run()],
            2_000_000,
            hold_periods=10,
        )
        self.assertEqual({self.numbers[0]}, self.policy.together)
        for other in self.numbers[1:]:
            self.host.remove_vm(other)
        self.agenda.run(3_000_000)
        self.assertEqual(frozenset(), self.policy.together)

    def test_threshold_decides(self):
        self._run(
            [programs.Spin(500), programs.Run()], 2_000_000, threshold_us=1e9
        )
        self.assertEqual(frozenset(), self.policy.together)


class SensorTest(unittest.TestCase):
    def test_latency_is_what_vcpus_wait_at_barriers(self):
        spec = HostSpec(
            'test',
            2,
            (
                VmSpec('spins', '', programs.Spin(500), 2, opted_in=True),
                VmSpec('busy', '', programs.Run(), 2, opted_in=True),
            ),
            kernel=XenCredit(),
        )
        simulated, numbers = measurement.start(spec, 1)
        reading = sensor.Sensor(simulated, spec, numbers, 30_000)
        in_force = {vm.name: reading.original(vm) for vm in spec.vms}
        simulated.advance(5_000_000)
        view = reading.view(in_force, 0.0)
        counters = simulated.counters(numbers['spins'])
        spins, busy = view.vms
        self.assertAlmostEqual(
            counters.barrier_wait_us / counters.barriers,
            spins.sample.sync_latency_us,
        )
        self.assertEqual(0.0, busy.sample.sync_latency_us)
        self.assertTrue(view.limits.thread_slices)

    def test_shortest_slice_is_the_rate_limit(self):
        limits = sensor.limits(XenCredit(ratelimit_us=5_000))
        self.assertEqual(5_000, limits.effective_min_slice_us)
        self.assertEqual(sensor.LIMITS, sensor.limits(LINUX))
