# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Enter and leave rule, groups, and CG's flapping (section V)."""

import itertools

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.phases import tracker
from nova_vhpc.tests import base

IO = model.Phase.IO
COMPUTING = model.Phase.COMPUTING
AUTO, ALWAYS, NEVER = model.IoPoolUse


class Oracle:
    """Predicts what it was told to; last value without."""

    state_bytes = 0

    def __init__(self, script=()):
        self.script = list(script)
        self.last = 0

    def observe(self, state, events):
        self.last = state

    def predict(self):
        return self.script.pop(0) if self.script else self.last


class Host:
    """Feeds a tracker and remembers what came of it."""

    def __init__(self, make=Oracle, period_us=100_000, **config):
        self.tracker = tracker.PhaseTracker(
            control_config.ControlConfig(**config), make
        )
        self.period_us = period_us
        self.tick = 0
        self.peers = {}
        self.cluster = 'c1'
        self.io_pool = {}
        # Prediction and threshold by VM, in the last tick.
        self.numbers = {}
        self.faults = []

    def step(self, **events):
        """One tick; I/O events by VM."""
        self.tick += 1
        view = model.HostView(
            tick=self.tick,
            now_us=self.tick * self.period_us,
            period_us=self.period_us,
            cpus=(),
            vms=tuple(
                model.VmView(
                    uuid,
                    2,
                    cluster=self.cluster,
                    io_pool=self.io_pool.get(uuid, AUTO),
                    sample=model.Sample(io_events=value),
                )
                for uuid, value in events.items()
            ),
            peers=self.peers,
        )
        seen = self.tracker.advance(view)
        self.faults += self.tracker.faults
        self.numbers = {
            uuid: (phase.predicted_events, phase.threshold_events)
            for uuid, phase in seen.items()
        }
        return {uuid: phase.effective for uuid, phase in seen.items()}

    def warm_up(self, *uuids):
        """A threshold of 250: half the samples at 0, half at 500."""
        for value in [500.0, 0.0] * 25 + [0.0] * 25:
            result = self.step(**dict.fromkeys(uuids, value))
        return result

    def phases_of(self, values, uuid='a'):
        return [self.step(**{uuid: value})[uuid] for value in values]


class EnterTest(base.TestCase):
    def test_nobody_moves_before_the_first_threshold(self):
        host = Host()
        self.assertEqual(
            [COMPUTING] * 49, host.phases_of([500.0, 0.0] * 24 + [500.0])
        )

    def test_at_once_when_the_prediction_exceeds_the_threshold(self):
        host = Host(leave_rule='paper')
        self.assertEqual(COMPUTING, host.warm_up('a')['a'])
        self.assertEqual([IO], host.phases_of([500.0]))

    def test_on_the_prediction_not_on_the_sample(self):
        script = [0] * 75 + [0, 10, 0]
        host = Host(make=lambda: Oracle(script), leave_rule='paper')
        host.warm_up('a')
        self.assertEqual([COMPUTING, IO], host.phases_of([500.0, 0.0]))

    def test_a_prediction_at_the_threshold_does_not_exceed_it(self):
        # 500 events are state 11, whose middle is 525.
        host = Host(io_floor_events=525)
        host.warm_up('a')
        self.assertEqual([COMPUTING], host.phases_of([500.0]))
        self.assertEqual([IO], host.phases_of([550.0]))

    def test_next_to_no_io_is_no_io_phase(self):
        # EP: Otsu finds two classes in noise, too.
        host = Host()
        self.assertEqual(
            {COMPUTING}, set(host.phases_of([0.0, 3.0, 1.0, 40.0] * 60))
        )


class PaperLeaveTest(base.TestCase):
    def host(self, make=Oracle):
        host = Host(make=make, leave_rule='paper')
        host.warm_up('a')
        return host

    def test_after_three_low_periods(self):
        self.assertEqual(
            [IO, IO, IO, COMPUTING],
            self.host().phases_of([500.0, 0.0, 0.0, 0.0]),
        )

    def test_three_in_a_row(self):
        self.assertEqual(
            [IO] * 6,
            self.host().phases_of([500.0, 0.0, 0.0, 500.0, 0.0, 0.0]),
        )

    def test_io_at_the_threshold_does_not_exceed_it(self):
        script = [0] * 75 + [10, 0, 0, 0]
        host = self.host(make=lambda: Oracle(script))
        self.assertEqual(
            [IO, IO, IO, COMPUTING],
            host.phases_of([500.0, 250.0, 250.0, 250.0]),
        )
        self.assertEqual(250.0, host.numbers['a'][1])

    def test_not_on_a_high_prediction(self):
        script = [0] * 75 + [10, 10, 10, 10, 10, 0]
        host = self.host(make=lambda: Oracle(script))
        self.assertEqual(
            [IO, IO, IO, IO, IO, COMPUTING],
            host.phases_of([500.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        )


def cg_like(iterations, pause=5, burst=20):
    """Section II.B: always much I/O, but for the end of each iteration."""
    return ([600.0] * burst + [20.0] * pause) * iterations


def moves(seen):
    return sum(a != b for a, b in itertools.pairwise(seen))


class FlappingTest(base.TestCase):
    """Section V, figure 5: CG moves back and forth."""

    def test_the_papers_rule_flaps_when_pauses_exceed_three_periods(self):
        host = Host(leave_rule='paper')
        seen = host.phases_of(cg_like(40))
        # Out and back once per iteration, from the first threshold on.
        self.assertGreaterEqual(moves(seen), 2 * (40 - 4))

    def test_as_the_paper_says_not_with_shorter_pauses(self):
        host = Host(leave_rule='paper')
        self.assertLessEqual(moves(host.phases_of(cg_like(40, pause=2))), 2)

    def test_the_learned_rule_does_not_flap(self):
        for pause in (4, 5, 8, 15):
            host = Host()
            self.assertEqual(1, moves(host.phases_of(cg_like(40, pause))))

    def test_the_learned_rule_still_leaves_for_real_computing(self):
        host = Host()
        host.phases_of(cg_like(20))
        self.assertEqual(COMPUTING, host.phases_of([0.0] * 21)[-1])

    def test_it_leaves_as_early_as_the_papers_where_that_is_right(self):
        # BT-like: long computing phases between exchanges.
        host = Host()
        host.phases_of(([500.0] * 10 + [0.0] * 60) * 6)
        seen = host.phases_of([500.0] * 10 + [0.0] * 60)
        self.assertEqual([IO, IO, COMPUTING], seen[10:13])


class GroupTest(base.TestCase):
    def test_members_move_together(self):
        host = Host(leave_rule='paper')
        host.warm_up('a', 'b')
        self.assertEqual({'a': IO, 'b': IO}, host.step(a=500.0, b=0.0))

    def test_they_stay_while_one_has_io(self):
        host = Host(leave_rule='paper')
        host.warm_up('a', 'b')
        host.step(a=500.0, b=500.0)
        for _ in range(5):
            self.assertEqual({'a': IO, 'b': IO}, host.step(a=500.0, b=0.0))
        host.step(a=0.0, b=0.0)
        host.step(a=0.0, b=0.0)
        self.assertEqual(
            {'a': COMPUTING, 'b': COMPUTING}, host.step(a=0.0, b=0.0)
        )

    def test_vms_without_cluster_move_alone(self):
        host = Host()
        host.cluster = None
        host.warm_up('a', 'b')
        self.assertEqual({'a': IO, 'b': COMPUTING}, host.step(a=500.0, b=0.0))

    def test_a_peers_io_moves_us_but_is_not_told_back(self):
        host = Host()
        host.warm_up('a')
        host.peers = {'c1': model.PeerView(io=True)}
        self.assertEqual({'a': IO}, host.step(a=0.0))
        self.assertEqual(COMPUTING, host.tracker.own_phase('c1'))
        host.peers = {}
        self.assertEqual({'a': COMPUTING}, host.step(a=0.0))

    def test_io_of_another_clusters_peer_moves_nobody(self):
        host = Host()
        host.warm_up('a')
        host.peers = {'c2': model.PeerView(io=True)}
        self.assertEqual({'a': COMPUTING}, host.step(a=0.0))

    def test_always_and_never(self):
        host = Host(leave_rule='paper')
        host.io_pool = {'b': ALWAYS, 'c': NEVER}
        host.warm_up('a', 'b', 'c')
        self.assertEqual(
            {'a': COMPUTING, 'b': IO, 'c': COMPUTING},
            host.step(a=0.0, b=0.0, c=0.0),
        )
        # Nor does one that is never moved pull the others along.
        self.assertEqual(
            {'a': COMPUTING, 'b': IO, 'c': COMPUTING},
            host.step(a=0.0, b=0.0, c=500.0),
        )
        self.assertEqual(
            {'a': IO, 'b': IO, 'c': COMPUTING},
            host.step(a=500.0, b=0.0, c=0.0),
        )

    def test_a_member_that_never_moves_does_not_keep_the_phase(self):
        """Else the cluster's other hosts would be told of it for ever."""
        host = Host(leave_rule='paper')
        host.io_pool = {'b': NEVER}
        host.warm_up('a', 'b')
        host.step(a=500.0, b=0.0)
        self.assertEqual(IO, host.tracker.own_phase('c1'))
        host.phases_of([500.0] * 30, 'b')
        self.assertEqual(COMPUTING, host.tracker.own_phase('c1'))

    def test_a_member_without_samples_does_not_keep_the_phase(self):
        host = Host(leave_rule='paper')
        host.warm_up('a')
        host.step(a=500.0)
        self.assertEqual(COMPUTING, host.phases_of([None] * 30, 'new')[-1])


class GapsTest(base.TestCase):
    def test_a_missing_sample_moves_nobody(self):
        host = Host(leave_rule='paper')
        host.warm_up('a')
        host.step(a=500.0)
        self.assertEqual([IO] * 3, host.phases_of([None] * 3))

    def test_unknown_for_long_is_no_io_phase(self):
        host = Host(leave_rule='paper')
        host.warm_up('a')
        host.step(a=500.0)
        known = []
        for _ in range(20):
            seen = host.step(a=None)
            known.append(host.numbers['a'][0] is not None)
        self.assertEqual(COMPUTING, seen['a'])
        self.assertEqual([True] * 9 + [False] * 11, known)

    def test_ticks_shorter_than_a_sampling_period_are_summed_up(self):
        coarse = Host(leave_rule='paper')
        fine = Host(leave_rule='paper', period_us=50_000)
        values = [500.0, 0.0] * 25 + cg_like(4)
        twice = [value for value in values for _ in range(2)]
        self.assertEqual(coarse.phases_of(values), fine.phases_of(twice)[1::2])

    def test_what_counts_of_short_ticks_is_their_mean(self):
        coarse = Host(leave_rule='paper')
        fine = Host(leave_rule='paper', period_us=50_000)
        values = [500.0, 0.0] * 25 + cg_like(4)
        halves = [half for value in values for half in (2 * value, 0.0)]
        self.assertEqual(
            coarse.phases_of(values), fine.phases_of(halves)[1::2]
        )
        self.assertEqual(coarse.numbers['a'], fine.numbers['a'])

    def test_where_all_samples_are_alike_there_is_no_threshold(self):
        host = Host()
        self.assertEqual({COMPUTING}, set(host.phases_of([500.0] * 120)))
        self.assertEqual([], host.faults)
        self.assertEqual((525.0, None), host.numbers['a'])

    def test_vanished_vms_are_forgotten(self):
        host = Host()
        for number in range(180):
            host.cluster = f'c{number // 60}'
            host.step(**{f'vm{number // 60}': number % 7 * 100.0})
        self.assertEqual(1, len(host.tracker._tracked))
        self.assertLessEqual(len(host.tracker._groups), 1)
        self.assertLessEqual(len(host.tracker._sums), 1)

    def test_thresholds_of_many_vms_are_not_all_renewed_at_once(self):
        host = Host()
        host.cluster = None
        names = [f'vm{number}' for number in range(200)]
        known = []
        for tick in range(80):
            host.step(**dict.fromkeys(names, float(tick % 7) * 100))
            known.append(
                sum(
                    tracked.threshold.value is not None
                    for tracked in host.tracker._tracked.values()
                )
            )
        steps = [b - a for a, b in itertools.pairwise(known)]
        self.assertEqual(200, known[-1])
        self.assertEqual(20, max(steps))


class Sharing(Oracle):
    """Knows whom it learns with, and in what order all are asked."""

    def __init__(self, log, together=None):
        super().__init__()
        self.log = log
        self.together = together or {self}
        self.together.add(self)

    def for_peer(self):
        return Sharing(self.log, self.together)

    def observe(self, state, events):
        super().observe(state, events)
        self.log.append('observe')

    def predict(self):
        self.log.append('predict')
        return super().predict()


class PeersTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.log = []
        self.made = []

    def make(self):
        self.made.append(Sharing(self.log))
        return self.made[-1]

    def test_members_of_a_cluster_learn_together(self):
        host = Host(self.make)
        host.step(a=0.0, b=0.0, c=0.0)
        self.assertEqual([3], [len(one.together) for one in self.made])

    def test_all_observe_before_one_is_predicted(self):
        Host(self.make).step(a=0.0, b=0.0)
        self.assertEqual(
            ['observe', 'observe', 'predict', 'predict'], self.log
        )

    def test_a_vm_without_sample_is_not_predicted(self):
        Host(self.make).step(a=0.0, b=None)
        self.assertEqual(['observe', 'predict'], self.log)

    def test_vms_without_a_cluster_learn_alone(self):
        host = Host(self.make)
        host.cluster = None
        host.step(a=0.0, b=0.0)
        self.assertEqual([1, 1], [len(one.together) for one in self.made])

    def test_a_vm_that_turns_out_to_be_a_member_joins(self):
        host = Host(self.make)
        host.cluster = None
        host.step(a=0.0, b=0.0)
        host.cluster = 'c1'
        host.step(a=0.0, b=0.0)
        self.assertEqual([1, 1, 2], [len(one.together) for one in self.made])
        host.step(a=0.0, b=0.0)
        self.assertEqual(3, len(self.made))

    def test_its_threshold_is_its_own_and_stays(self):
        host = Host()
        host.cluster = None
        host.warm_up('a')
        host.cluster = 'c1'
        host.step(a=0.0)
        self.assertEqual((0.0, 250.0), host.numbers['a'])

    def test_a_tick_without_the_cluster_parts_nobody(self):
        host = Host(self.make, period_us=25_000)
        for _ in range(4):
            host.step(a=0.0, b=0.0)
        host.cluster = None
        host.step(a=0.0, b=0.0)
        host.cluster = 'c1'
        for _ in range(8):
            host.step(a=0.0, b=0.0, c=0.0)
        self.assertEqual([3], [len(one.together) for one in self.made])

    def test_a_cluster_that_is_gone_is_forgotten(self):
        host = Host(self.make)
        host.step(a=0.0)
        host.step()
        host.step(b=0.0)
        self.assertEqual([1, 1], [len(one.together) for one in self.made])
