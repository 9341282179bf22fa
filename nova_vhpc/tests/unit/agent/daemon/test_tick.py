# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.daemon.tick`, with a recorder."""

import time

import fixtures
from oslotest import base

from nova_vhpc.agent import tick_result
from nova_vhpc.agent.daemon import tick
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.control import model
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent.guests import test_guest


class Manager:
    """Records what the tick writes."""

    def __init__(self, *guests: Guest) -> None:
        self.guests = {guest.uuid: guest for guest in guests}
        self.written: list[model.CpuTune] = []
        self.looked: list[str] = []

    def write(self, guest: Guest, tune: model.CpuTune) -> None:
        self.written.append(tune)

    def enqueue(self, uuid: str) -> None:
        self.looked.append(uuid)


class Decider:
    """Decides on 5 ms, or on what ``tune`` says."""

    def __init__(self) -> None:
        self.tune = model.CpuTune(5_000, 5_000, 1024)
        self.views: list[model.HostView] = []
        self.error: Exception | None = None

    def decide(self, view: model.HostView) -> model.Plan:
        self.views.append(view)
        if self.error is not None:
            raise self.error
        tune = self.tune
        return model.Plan(
            {
                vm.uuid: model.VmPlan(
                    vm.uuid, tune, tune, 5_000, model.Phase.COMPUTING
                )
                for vm in view.vms
            }
        )


class Reader:
    """Reads the sample of one guest."""

    def __init__(self) -> None:
        self.dead = False
        self.closed = False

    def read(self, now_us: int, period_us: int) -> model.Sample:
        return model.Sample(sync_latency_us=1.0)

    def close(self) -> None:
        self.closed = True


class TickLoopTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guest = test_guest.make()
        self.guest.reader = Reader()
        self.manager = Manager(self.guest)
        self.decider = Decider()
        self.results: list[tick_result.TickResult] = []
        self.offline_cpus: frozenset[int] = frozenset()

    def make(self, period_us: int = 10_000) -> tick.TickLoop:
        return tick.TickLoop(
            period_us,
            lambda: (model.Cpu(0),),
            model.ActuatorLimits,
            self.manager,
            self.decider,
            lambda guest: 'cluster',
            lambda: {'cluster': model.PeerView(io=True)},
            (self.results.append,),
            offline_cpus=lambda: self.offline_cpus,
            slots=lambda: {'cluster': model.ClusterSlot(0b1001, 2)},
        )

    def test_view_has_the_slots_agreed_on(self) -> None:
        self.make().tick()
        slot = self.results[0].view.slots['cluster']
        self.assertEqual((0b1001, 2), slot)

    def test_only_values_that_differ_are_written(self) -> None:
        ticker = self.make()
        ticker.tick()
        self.assertEqual([model.CpuTune(5_000, 5_000)], self.manager.written)
        self.guest.note_written({'vcpu_period': 5_000, 'vcpu_quota': 5_000})
        ticker.tick()
        self.assertEqual(1, len(self.manager.written))

    def test_pins_to_offline_cpus_are_not_written(self) -> None:
        pins = (test_guest.BOTH,) * 2
        self.guest.note_written(pins=dict.fromkeys(range(2), frozenset({0})))
        self.decider.tune = model.CpuTune(vcpu_pins=pins)
        ticker = self.make()
        self.offline_cpus = frozenset({1})
        ticker.tick()
        self.assertEqual([], self.manager.written)
        self.offline_cpus = frozenset()
        ticker.tick()
        (tune,) = self.manager.written
        self.assertEqual(pins, tune.vcpu_pins)

    def test_view_has_cluster_sample_and_peers(self) -> None:
        self.make().tick()
        (view,) = self.decider.views
        (vm,) = view.vms
        self.assertEqual('cluster', vm.cluster)
        self.assertEqual(1.0, vm.sample.sync_latency_us)
        self.assertEqual(100_000, vm.original.period_us)
        self.assertTrue(view.peers['cluster'].io)

    def test_view_is_reused_until_something_changes(self) -> None:
        ticker = self.make()
        sample = model.Sample(sync_latency_us=1.0)
        self.guest.reader.read = lambda now_us, period_us: sample
        for change in (
            lambda: None,
            lambda: None,
            lambda: self.guest.note_written({'cpu_shares': 7}),
            lambda: setattr(self.guest, 'repin', False),
        ):
            change()
            ticker.tick()
        first, same, written, free = (
            view.vms[0] for view in self.decider.views
        )
        self.assertIs(first, same)
        self.assertEqual(7, written.in_force.shares)
        self.assertFalse(free.repin)

    def test_readers_no_longer_used_are_closed(self) -> None:
        ticker = self.make()
        ticker.tick()
        old, self.guest.reader = self.guest.reader, Reader()
        ticker.tick()
        self.assertTrue(old.closed)
        other = test_guest.make()
        other.reader = Reader()
        self.manager.guests = {'another': other}
        ticker.tick()
        self.assertTrue(self.guest.reader.closed)
        self.assertFalse(other.reader.closed)

    def test_dead_reader_has_the_domain_enqueued_once(self) -> None:
        ticker = self.make()
        reader = self.guest.reader
        reader.read = lambda now_us, period_us: die(reader)
        ticker.tick()
        ticker.tick()
        self.assertEqual([self.guest.uuid], self.manager.looked)

    def test_failing_tick_is_counted_and_the_next_one_runs(self) -> None:
        ticker = self.make()
        self.decider.error = ZeroDivisionError('x')
        ticker.tick_safely()
        ticker.tick_safely()
        self.assertEqual(2, ticker.failures)
        self.assertEqual([], self.results)
        self.decider.error = None
        ticker.tick_safely()
        self.assertEqual(1, len(self.results))

    def test_overruns_are_counted_and_skipped(self) -> None:
        ticker = self.make(1_000)
        slow = self.decider.decide

        def decide(view: model.HostView) -> model.Plan:
            time.sleep(0.005)
            return slow(view)

        self.decider.decide = decide
        ticker.start()
        waiting.wait_for(lambda: ticker.ticks >= 5)
        ticker.stop()
        self.assertGreaterEqual(ticker.overruns, 4)


def die(reader: Reader) -> model.Sample:
    reader.dead = True
    return model.Sample()


class DiagnosticsLogTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.subject = tick.DiagnosticsLog(lambda uuid: f'vm-{uuid}')
        self.tick = 0

    def report(self, *occurred: tuple[str, str], ticks: int = 1) -> list[str]:
        """Return what is logged if these occur in each of some ticks."""
        before = len(self.log.output.splitlines())
        for _ in range(ticks):
            self.tick += 1
            self.subject.report(
                self.tick, [model.Diagnostic(*one) for one in occurred]
            )
        return self.log.output.splitlines()[before:]

    def test_diagnostics_that_differ_in_numbers_are_logged_once(self) -> None:
        self.assertEqual(
            ['VM vm-a: io_events = -1.5'],
            self.report(('a', 'io_events = -1.5')),
        )
        self.assertEqual([], self.report(('a', 'io_events = -7e9')))
        self.assertEqual(1, len(self.report(('b', 'io_events = -7e9'))))
        self.assertEqual(1, len(self.report(('a', 'has 0 vCPUs'))))

    def test_diagnostic_of_the_host_has_no_server_name(self) -> None:
        self.assertEqual(['no pools'], self.report(('', 'no pools')))

    def test_lasting_diagnostic_is_logged_once(self) -> None:
        self.assertEqual(
            1, len(self.report(('a', 'x'), ticks=3 * tick.REPEAT_TICKS))
        )

    def test_diagnostic_that_returns_is_logged_again(self) -> None:
        self.report(('a', 'x'))
        self.assertEqual([], self.report(ticks=10))
        self.assertEqual([], self.report(('a', 'x')))
        self.report(ticks=2 * tick.REPEAT_TICKS)
        self.assertEqual(1, len(self.report(('a', 'x'))))

    def test_number_of_remembered_diagnostics_is_limited(self) -> None:
        many = [
            (str(number), 'x') for number in range(tick.MAX_REMEMBERED + 50)
        ]
        said = self.report(*many, ticks=3)
        self.assertEqual(tick.MAX_REMEMBERED + 1, len(said))
        self.assertIn('not logged', said[-1])
