# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""What messages, floods and replays do to the table of leases."""

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.control import leases

LEASE = 6_000_000
LIMIT = leases.MAX_LEASES * LEASE
GREATEST = 2**63 - 1
C = 'c'

ANY_NUMBER = st.integers(0, 2**42) | st.just(GREATEST)


def message(
    seq: int,
    said: str = '',
    boot: int = 1,
    lease: int = LEASE,
    host: str = 'b',
) -> leases.Message[str]:
    return leases.Message(C, host, boot, seq, lease, said)


class LeasesCase(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.confirmed: set[str] = set()
        self.table = leases.LeaseTable[str](
            LEASE, lambda said: said == 'io', lambda cluster: self.confirmed
        )
        self.leases: leases.Leases[str] = {}

    def hear(self, *heard: leases.Message[str], at: int = 0) -> None:
        for one in heard:
            self.leases = self.table.receive(self.leases, one, at)

    def says(self, at: int = 0, host: str = 'b') -> str | None:
        """Return what a host says by a lease in force; None for nothing."""
        return dict(leases.live(self.leases, at)).get(host)

    def flood(
        self, count: int, said: str = '', at: int = 0, name: str = 'x'
    ) -> None:
        self.hear(
            *(message(1, said, host=f'{name}{n}') for n in range(count)), at=at
        )


class LeaseTest(LeasesCase):
    def test_statement_ends_with_its_lease(self) -> None:
        self.hear(message(1, 'io'))
        self.assertEqual('io', self.says(LEASE - 1))
        self.assertIsNone(self.says(LEASE))

    def test_greater_number_counts_whatever_the_order_of_arrival(self) -> None:
        for first, second, counts in (
            ((1, 1), (1, 2), 2),
            ((1, 2), (1, 1), 1),
            ((2, 99), (1, 100), 2),
            ((1, 99), (2, 1), 1),
            ((2, 1), (1, 1), 1),
        ):
            with self.subTest(first=first, second=second):
                self.leases = {}
                for number, (boot, seq) in enumerate((first, second), 1):
                    self.hear(message(seq, str(number), boot))
                self.assertEqual(str(counts), self.says())

    def test_duplicate_does_not_extend_a_lease(self) -> None:
        self.hear(message(1))
        self.hear(message(1), at=LEASE - 1)
        self.assertIsNone(self.says(LEASE))

    def test_withdrawal_ends_a_statement_at_once(self) -> None:
        self.hear(message(1), message(2, lease=0))
        self.assertIsNone(self.says())

    def test_longest_lease_is_a_few_of_this_hosts(self) -> None:
        self.hear(message(1, lease=GREATEST))
        self.assertIsNotNone(self.says(LIMIT - 1))
        self.assertIsNone(self.says(LIMIT))

    def test_start_of_the_machine_is_heard_and_the_last_one_stays_dead(
        self,
    ) -> None:
        self.hear(message(98, 'io'))
        started = 2 * LEASE
        self.hear(message(5, 'quiet', boot=2), at=started)
        for seq in (98, 99):
            self.hear(message(seq, 'io'), at=started + 1)
            self.assertEqual('quiet', self.says(started + 1))
        for at in (started + LIMIT, 10 * LIMIT):
            self.hear(message(98, 'io'), at=at)
            self.assertIsNone(self.says(at))

    def test_start_after_the_clock_was_set_back_is_heard_at_once(self) -> None:
        self.hear(message(10**9, 'io', boot=5000))
        self.hear(message(10**9 + 1, 'quiet', boot=400))
        self.assertEqual('quiet', self.says())
        self.hear(message(10**9, 'io', boot=5000), at=1)
        self.assertEqual('quiet', self.says())

    def test_clock_that_runs_fast_does_not_unlock_old_messages(self) -> None:
        hour = 3600 * 10**6
        for hours in range(24 * 20):
            # 0.1 ms per second: a minute in a week.
            sent = message(hours * (hour + hour // 10_000))
            self.hear(sent, at=hours * hour)
        at = hours * hour + LIMIT
        self.assertIs(self.leases, self.table.receive(self.leases, sent, at))

    def test_silent_host_is_forgotten_in_the_end(self) -> None:
        self.hear(message(1))
        self.assertIs(self.leases, self.table.forget(self.leases, LIMIT))
        end = (leases.MEMORY_LEASES + 2) * LEASE
        self.assertEqual({}, self.table.forget(self.leases, end))


class ForgeryTest(LeasesCase):
    @hypothesis.given(
        st.lists(
            st.builds(
                message,
                ANY_NUMBER,
                boot=st.integers(0, 3) | ANY_NUMBER,
                lease=ANY_NUMBER,
            ),
            max_size=6,
        )
    )
    def test_forged_messages_mute_a_host_for_four_leases(
        self, forged: list[leases.Message[str]]
    ) -> None:
        start = 10**12
        for is_known in (True, False):
            self.leases = {}
            if is_known:
                self.hear(message(start, boot=2), at=5)
            self.hear(*forged, at=5)
            later = 5 + LIMIT
            self.hear(message(start + LIMIT, 'io', boot=2), at=later)
            # A start that was never heard has no numbers to compare with.
            if is_known or all(one.boot != 2 for one in forged):
                self.assertEqual('io', self.says(later))

    def test_forgeries_that_run_ahead_step_by_step_mute_no_longer(
        self,
    ) -> None:
        self.hear(message(10**12), at=5)
        for step in range(1, 9):
            self.hear(message(10**12 + step * (LIMIT - 1)), at=5)
        self.hear(message(10**12 + LIMIT, 'io'), at=5 + LIMIT)
        self.assertEqual('io', self.says(5 + LIMIT))


class FloodTest(LeasesCase):
    MOST = leases.MAX_HOSTS

    def test_invented_hosts_do_not_fill_the_memory(self) -> None:
        self.flood(3 * self.MOST)
        self.assertLessEqual(len(self.leases), self.MOST)

    def test_new_host_is_heard_beside_any_number_of_others(self) -> None:
        for flooded, said in (('', 'io'), ('io', 'io'), ('io', '')):
            self.leases = {}
            self.flood(self.MOST + 9, flooded)
            self.hear(message(1, said))
            self.assertEqual(said, self.says())

    def test_hosts_keep_their_place_before_names_heard_once(self) -> None:
        for heard in ([message(1), message(2)], [message(1, 'io')]):
            self.leases = {}
            self.hear(*heard)
            self.flood(2 * self.MOST, at=1)
            self.assertEqual(heard[-1].statement, self.says(1))

    def test_host_that_was_heard_least_lately_goes_first(self) -> None:
        self.flood(self.MOST - 1)
        self.hear(message(1), at=1)
        self.flood(1, at=2, name='y')
        self.assertEqual('', self.says(2))
        self.assertIsNone(self.says(2, 'x0'))

    def test_hosts_that_nova_knows_keep_their_place(self) -> None:
        self.confirmed = {'b'}
        self.hear(message(1))
        self.flood(2 * self.MOST, 'io', at=1)
        self.flood(2 * self.MOST, 'io', at=1, name='y')
        self.assertEqual('', self.says(1))


class ReplayMachine(stateful.RuleBasedStateMachine):
    """An honest host, and a bus that is late, and delivers again."""

    def __init__(self) -> None:
        super().__init__()
        self.table = leases.LeaseTable[str](LEASE, lambda said: False)
        self.leases: leases.Leases[str] = {}
        self.now = 10**6
        self.clock = 10**12
        self.boot = 10**6
        self.restarts = 0
        # A message that is later than a lease may count, for as long.
        self.muted_until = 0
        self.late: list[leases.Message[str]] = []
        self.heard: list[leases.Message[str]] = []

    @stateful.rule(us=st.integers(1, 3 * LEASE), ppm=st.integers(-200, 200))
    def wait(self, us: int, ppm: int) -> None:
        self.now += us
        self.clock += us + us * ppm // 10**6

    @stateful.rule(is_late=st.booleans(), lease=st.sampled_from([0, LEASE]))
    def send(self, is_late: bool, lease: int) -> None:
        self.clock += 1
        sent = message(self.clock, str(self.clock), self.boot, lease)
        if is_late:
            self.late.append(sent)
            return
        is_muted = 'b' in self.leases and self.now < self.muted_until
        self.deliver(sent)
        assert is_muted or self.leases['b'].statement == sent.statement

    def deliver(self, sent: leases.Message[str]) -> None:
        before = self.leases
        self.leases = self.table.receive(before, sent, self.now)
        if self.leases is not before:
            self.heard.append(sent)

    @stateful.precondition(lambda self: self.restarts < 3)
    @stateful.rule(clock_change=st.integers(-1000, 1000))
    def restart(self, clock_change: int) -> None:
        self.restarts += 1
        self.boot += 10_000 * self.restarts + clock_change
        if clock_change < 0:
            self.boot -= 50_000

    @stateful.precondition(lambda self: self.heard)
    @stateful.rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        again = data.draw(st.sampled_from(self.heard))
        assert self.leases is self.table.receive(self.leases, again, self.now)

    @stateful.precondition(lambda self: self.late)
    @stateful.rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        late = data.draw(st.sampled_from(self.late))
        self.late.remove(late)
        last = self.leases.get('b')
        self.deliver(late)
        if self.leases['b'].seq == late.seq:
            self.muted_until = self.leases['b'].closed_us
        if last is not None and self.now < last.until_us:
            newest = max(last.seq, late.seq)
            assert self.leases['b'].seq == newest


ReplayMachine.TestCase.settings = hypothesis.settings(
    max_examples=150, stateful_step_count=30, deadline=None
)


class ReplayTest(ReplayMachine.TestCase):
    pass
