# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever happens to a server, it has its own settings when it is restored.

Its own settings are those that its run began with, and those that somebody
else set since.
"""

import shutil
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

import hypothesis
import libvirt
from hypothesis import strategies as st

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

OWN_PINS = [(True, True)] * 2
EVENTS = {
    cputune.PERIOD: 'cputune.vcpu_period',
    cputune.QUOTA: 'cputune.vcpu_quota',
    cputune.SHARES: 'cputune.cpu_shares',
}

tunes = st.builds(
    model.CpuTune,
    st.sampled_from((8_000, 9_000)),
    st.sampled_from((4_000, 5_000)),
    st.sampled_from((None, 2_048)),
    st.sampled_from((None, (frozenset({0}), frozenset({1})))),
)
# No value that an agent writes here: it would pass for the agent's.
external = st.one_of(
    st.tuples(st.just(cputune.PERIOD), st.sampled_from((70_000, 80_000))),
    st.tuples(st.just(cputune.QUOTA), st.sampled_from((30_000, 40_000))),
    st.tuples(st.just(cputune.SHARES), st.sampled_from((333, 444))),
)
writes = st.one_of(
    st.just(('look',)),
    st.tuples(st.just('tick'), tunes),
    st.tuples(st.just('window'), st.sampled_from((20, 40_960))),
)
happenings = st.one_of(
    *(
        st.tuples(st.just(name))
        for name in (
            *('resync', 'pause', 'resume', 'restore', 'resume_one'),
            *('opt_out', 'opt_in', 'leave', 'stay', 'restart', 'crash'),
            *('refuse_all', 'allow', 'lose_journal', 'lose_copy'),
            *('migrate', 'end_migration'),
        )
    ),
    st.tuples(st.just('restart_at_call'), st.integers(1, 4)),
    st.tuples(st.just('restart_at_call'), st.integers(1, 4)),
    st.tuples(st.just('set'), external),
    st.tuples(st.just('set_while_no_agent_runs'), external),
    st.tuples(
        st.just('set_just_before'),
        external,
        st.sampled_from(
            ('look', 'pause', 'restore', 'leave', 'opt_out', 'crash')
        ),
    ),
)


class AnyLifeTest(manager_case.ManagerTestCase):
    def begin(self) -> None:
        """Start a server and an agent."""
        self.manager.executor.close()
        shutil.rmtree(self.state)
        self.state = tempfile.mkdtemp()
        self.domain = fake_libvirt.Domain()
        self.own = dict(fake_libvirt.ORIGINAL)
        self.refuses = self.is_new_run = False
        self.held: set[str] = set()
        self.start()

    def start(self) -> None:
        """Start an agent, which knows nothing of an operator's holds."""
        self.held &= {'opt_out', 'external'}
        self.manager = self.make()
        self.look()

    def look(self) -> None:
        self.manager.enqueue('u')
        self.drain()

    resync = manager_case.ManagerTestCase.reconcile

    def tick(self, tune: model.CpuTune) -> None:
        guest = self.manager.guests.get('u')
        if guest is not None:
            self.manager.write(guest, tune)
        self.drain()

    def window(self, shares: int) -> None:
        try:
            self.manager.set_shares('u', shares)
        except libvirt.libvirtError:
            self.assertTrue(self.refuses)
        self.drain()

    def set(self, change: tuple[str, int]) -> None:
        """Have somebody else set a value; libvirt tells of it."""
        name, value = change
        self.domain.values[name] = self.own[name] = value
        self.manager._events._on_tunable(
            None, self.domain, {EVENTS[name]: value}, None
        )
        self.drain()

    def set_just_before(self, change: tuple[str, int], then: str) -> None:
        """Have somebody set a value of which libvirt does not tell in time."""
        name, value = change
        self.domain.values[name] = self.own[name] = value
        getattr(self, then)()

    def set_while_no_agent_runs(self, change: tuple[str, int]) -> None:
        name, value = change
        self.end_without_restore()
        self.domain.values[name] = self.own[name] = value
        self.start()

    def end_without_restore(self) -> None:
        self.manager._context.permission.ending.set()
        self.manager.executor.close()

    def crash(self) -> None:
        self.end_without_restore()
        self.start()

    def lose_journal(self) -> None:
        """Crash; the disk has lost the record, the metadata has the copy."""
        self.end_without_restore()
        if self.domain.metadata_xml is not None:
            self.journal.remove('u')
        self.start()

    def lose_copy(self) -> None:
        """Crash, before the copy was written."""
        self.end_without_restore()
        if self.journal.load('u') is not None:
            self.domain.metadata_xml = None
        self.start()

    def pause(self) -> None:
        self.held.add('pause')
        self.manager.pause()
        self.drain()

    def resume(self) -> None:
        self.held -= {'pause', 'restore'}
        self.manager.resume()

    def restore(self) -> None:
        if self.manager.restore_one('u') is not None:
            self.held.add('restore')
        self.drain()

    def resume_one(self) -> None:
        if self.manager.resume_one('u') == '':
            self.held -= {'restore', 'external'}
        self.drain()

    def opt_out(self) -> None:
        self.held.add('opt_out')
        self.domain.specs = {}
        self.look()

    def opt_in(self) -> None:
        self.held.discard('opt_out')
        self.domain.specs = {'vhpc:workload': 'parallel'}
        self.look()

    def leave(self) -> None:
        self.held.add('leave')
        self.manager.restore_before_migration(frozenset({'u'}))
        self.drain()

    def stay(self) -> None:
        self.held.discard('leave')
        self.manager.restore_before_migration(frozenset())
        self.drain()

    def migrate(self) -> None:
        """Begin a migration of which Nova has not told."""
        self.held.add('migrate')
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.look()

    def end_migration(self) -> None:
        """Have the migration fail."""
        self.held.discard('migrate')
        self.domain.job = 0
        self.reconcile()

    def restart(self) -> None:
        """Start the server again, resized; the agent does not know of it."""
        self.held.discard('external')
        self.domain.id += 1
        quota = 10_000 + self.domain.id
        self.domain.extra = f'<cputune><quota>{quota}</quota></cputune>'
        self.own = {**fake_libvirt.ORIGINAL, cputune.QUOTA: quota}
        self.domain.values = dict(self.own)
        self.domain.pins = list(OWN_PINS)
        self.domain.metadata_xml = None
        self.is_new_run = True

    def restart_at_call(self, number: int) -> None:
        """Restart while one of the next calls waits for the domain."""
        left = iter(range(number - 1))

        def restart() -> None:
            if next(left, None) is None:
                self.domain.refuse = lambda: None
                self.restart()

        self.refuses = False
        self.domain.refuse = restart

    def refuse_all(self) -> None:
        self.refuses = True
        self.domain.refuse = self.refuse

    def allow(self) -> None:
        self.refuses = False
        self.domain.refuse = lambda: None
        self.reconcile()

    def assert_own_settings(self) -> None:
        self.assertEqual(self.own, self.domain.values)
        self.assertEqual(OWN_PINS, self.domain.pins)

    def act(self, name: str, *arguments: Any) -> None:
        writes, held = len(self.domain.written), set(self.held)
        is_new_run, self.is_new_run = self.is_new_run, False
        call: Callable[..., None] = getattr(self, name)
        call(*arguments)
        if (self.own, OWN_PINS) != (self.domain.values, self.domain.pins):
            # Otherwise neither the next agent nor another host could restore.
            self.assertEqual(('u',), self.journal.uuids())
            self.assertIsNotNone(self.domain.metadata_xml)
        if self.refuses:
            return
        # A new run may not be managed at all.
        if (name in ('tick', 'window') and held) or (
            is_new_run and name in ('tick', 'window', 'pause', 'restore')
        ):
            self.assertEqual(writes, len(self.domain.written))
        guest = self.manager.guests.get('u')
        if guest is not None and guest.external:
            # Handed back, until it starts anew or is resumed.
            self.held.add('external')
        if guest is None or (guest.holds and not guest.journalled):
            self.assert_own_settings()

    @hypothesis.settings(deadline=None, max_examples=200)
    @hypothesis.given(
        st.lists(st.tuples(writes, happenings), max_size=8),
        st.one_of(st.none(), external),
    )
    def test_server_has_its_own_settings_in_the_end(
        self,
        life: list[tuple[tuple[Any, ...], tuple[Any, ...]]],
        last: tuple[str, int] | None,
    ) -> None:
        with mock.patch('os.fsync'):
            self.begin()
            for write, happening in life:
                self.act(*write)
                self.act(*happening)
            self.allow()
            self.end_migration()
            if last is not None:
                self.domain.values[last[0]] = self.own[last[0]] = last[1]
            self.assertTrue(self.manager.stop(manager_case.PATIENCE_S))
        self.assert_own_settings()
        self.assertIsNone(self.domain.metadata_xml)
        record = self.journal.load('u')
        self.assertTrue(record is None or record.is_handed_back)
