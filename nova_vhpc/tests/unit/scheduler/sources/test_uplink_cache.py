# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import io
import json
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from unittest import mock

import fixtures
from oslo_config import cfg
from oslo_log import formatters, log

from nova_vhpc.scheduler.sources import uplink_cache
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.scheduler import neutron, world
from nova_vhpc.topology import model
from nova_vhpc_lab.bench.scheduler import world as bench_world


def reading_threads():
    """Threads of this process that read uplinks; of other tests, too."""
    return {
        thread
        for thread in threading.enumerate()
        if thread.name.startswith('vhpc-uplinks')
    }


class UplinkCacheTest(world.WorldTestCase):
    def setUp(self):
        super().setUp()
        self.flags(snapshot_ttl=1)
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))

    def get(self, path, version):
        answer = super().get(path, version)
        if isinstance(self.body, Exception):
            raise self.body
        return answer

    def test_first_request_waits_for_the_first_read(self):
        self.assertEqual([], self.reads)
        snapshot, reason = self.cache.snapshot()
        self.assertIsNone(reason)
        self.assertEqual(self.hosts, len(snapshot.hosts))
        self.assertEqual(2, len(self.reads))

    def pause(self, **options):
        """Make the snapshot old, as after a time without requests.

        :param options: options of ``[vhpc_scheduler]``.
        """
        self.flags(snapshot_ttl=100, **options)
        first, _ = self.cache.snapshot()
        self.cache._snapshot = dataclasses.replace(
            first, taken_s=time.monotonic() - 201
        )
        # On a busy machine that read took long, and none would be waited for.
        self.cache.read_s = 0.0

    def test_first_request_after_a_pause_waits_for_a_read(self):
        for slots in (3, 2):
            self.pause()
            for summary in self.body['provider_summaries'].values():
                if model.UPLINK in summary['resources']:
                    summary['resources'][model.UPLINK]['capacity'] = slots
            snapshot, _ = self.cache.snapshot()
            for host in snapshot.hosts.values():
                self.assertEqual(
                    {slots}, {uplink.slots for uplink in host.uplinks}
                )

    def test_requests_wait_once_at_most_for_a_read_that_takes_long(self):
        self.pause(fresh_read_timeout=0.5)
        hang = threading.Event()
        self.addCleanup(hang.set)
        self.cache._get = lambda *args: hang.wait(60) and self.get(*args)
        began_s = time.monotonic()
        self.assertIsNone(self.cache.snapshot()[1])
        self.assertGreaterEqual(time.monotonic() - began_s, 0.5)
        # Later requests do not wait: the read has already taken long.
        waiting.wait_for(
            lambda: time.monotonic() - self.cache._reading_since_s > 0.5
        )
        with mock.patch.object(self.cache, '_ended') as ended:
            for _ in range(3):
                self.assertIsNone(self.cache.snapshot()[1])
        ended.wait_for.assert_not_called()

    def test_request_does_not_wait_if_the_last_read_took_long(self):
        self.pause()
        self.cache.read_s = 0.6
        old = self.cache._snapshot
        self.assertIs(old, self.cache.snapshot()[0])
        # A later request gets the new snapshot.
        waiting.wait_for(lambda: self.cache._snapshot is not old)
        self.assertIsNot(old, self.cache.snapshot()[0])

    def test_request_does_not_wait_after_a_failed_read(self):
        self.pause(fresh_read_timeout=3600)
        self.body = ConnectionError('refused')
        self.assertTrue(self.end_of(self.cache.snapshot))
        self.assertTrue(self.end_of(self.cache.snapshot))

    def test_later_requests_do_not_read(self):
        self.flags(snapshot_ttl=3600)
        self.cache.snapshot()
        before = len(self.reads)
        for _ in range(100):
            self.cache.snapshot()
        self.assertEqual(before, len(self.reads))

    def test_thread_reads_again_but_names_only_once(self):
        self.cache.snapshot()
        waiting.wait_for(lambda: len(self.reads) >= 4)
        names = [path for path in self.reads if 'providers?' in path]
        self.assertEqual(1, len(names))

    def test_names_of_new_uplinks_are_read(self):
        self.cache.snapshot()
        gone = self.body['provider_summaries'].popitem()
        self.cache.refresh()
        self.body['provider_summaries'].update([gone])
        self.cache.refresh()
        names = [path for path in self.reads if 'providers?' in path]
        self.assertEqual(2, len(names))

    def test_names_of_neutrons_uplinks_are_read_only_once(self):
        providers = neutron.Providers(self.body)
        providers.add('host00000', 'HPC1')
        # Its name does not come, as if its agent had just been deleted.
        providers.add('host00001', 'HPC1')
        self.names.extend(
            name for name in providers.names if 'host00000' in name['name']
        )
        for _ in range(2):
            self.cache.refresh()
        names = [path for path in self.reads if 'providers?' in path]
        self.assertEqual(1, len(names))
        snapshot, _ = self.cache.snapshot()
        (uplink,) = snapshot.hosts[
            bench_world.root_uuid('host00000')
        ].neutron_uplinks
        self.assertEqual('br-hpc1', uplink.device)

    def test_reason_names_the_error_if_placement_never_answered(self):
        self.body = ConnectionError('refused')
        snapshot, reason = self.cache.snapshot()
        self.assertIsNone(snapshot)
        self.assertIn('ConnectionError: refused', reason)

    def test_log_line_contains_the_error_once(self):
        handler = logging.StreamHandler(io.StringIO())
        conf = cfg.ConfigOpts()
        log.register_options(conf)
        conf([], default_config_files=[])
        # As in nova-scheduler.
        handler.setFormatter(formatters.ContextFormatter(config=conf))
        logger = logging.getLogger('nova_vhpc')
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        self.body = ConnectionError('that is wrong')
        self.cache.snapshot()
        (line,) = handler.stream.getvalue().splitlines()
        self.assertEqual(1, line.count('that is wrong'), line)

    def test_last_snapshot_is_used_up_to_its_age(self):
        good = self.body
        self.cache.snapshot()
        self.body = ValueError('not JSON')
        self.cache.expire()
        waiting.wait_for(lambda: 'Cannot read' in self.log.output)
        self.assertIsNone(self.cache.snapshot()[1])
        self.flags(snapshot_max_age=1)
        waiting.wait_for(lambda: self.cache.snapshot()[1] is not None)
        snapshot, reason = self.cache.snapshot()
        self.assertIsNone(snapshot)
        self.assertIn('snapshot_max_age is 1 s: ValueError: not JSON', reason)
        waiting.wait_for(lambda: len(self.reads) > 4)
        self.assertEqual(1, self.log.output.count('Cannot read'))
        self.body = good
        self.cache.expire()
        waiting.wait_for(lambda: self.cache.snapshot()[1] is None)
        self.assertEqual(1, self.log.output.count('works again: 4 hosts'))

    def test_hanging_read_is_given_up(self):
        self.cache.snapshot()
        hang = threading.Event()
        self.addCleanup(hang.set)
        self.cache._get = lambda *_: hang.wait(60)
        self.flags(refresh_timeout=1)
        self.cache.expire()
        waiting.wait_for(lambda: self.cache._hangs())
        self.cache._get = self.get
        before = len(self.reads)
        # Requests go on with the last snapshot, and a new thread reads.
        self.assertIsNone(self.cache.snapshot()[1])
        waiting.wait_for(lambda: len(self.reads) > before)
        self.assertLess(before, len(self.reads))
        self.assertIn('taken more than 1 s', self.log.output)

    def test_requests_wait_once_for_a_first_read_that_hangs(self):
        hang = threading.Event()
        self.addCleanup(hang.set)
        self.cache._get = lambda *_: hang.wait(60)
        self.flags(first_read_timeout=0.5)
        waits = self.useFixture(
            fixtures.MockPatchObject(
                self.cache._first, 'wait', wraps=self.cache._first.wait
            )
        ).mock
        for _ in range(4):
            self.assertIn('not answered yet', self.cache.snapshot()[1])
        waited_s = [call.args[0] for call in waits.call_args_list]
        # Only the first one has to wait for it.
        self.assertGreater(waited_s[0], 0.0)
        self.assertEqual([0.0] * 3, waited_s[1:])

    def test_late_first_read_is_used(self):
        hang = threading.Event()
        self.addCleanup(hang.set)
        self.cache._get = lambda *args: hang.wait(60) and self.get(*args)
        self.flags(first_read_timeout=0.1)
        self.assertIsNone(self.cache.snapshot()[0])
        hang.set()
        waiting.wait_for(lambda: self.cache.snapshot()[0] is not None)
        self.assertIsNone(self.cache.snapshot()[1])

    def test_all_threads_share_one_cache(self):
        uplink_cache.reset()
        found = set()
        threads = [
            threading.Thread(
                target=lambda: found.add(uplink_cache.for_process(world.CONF))
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(1, len(found))

    def end_of(self, call):
        """Return whether a call in a thread ends within 20 seconds."""
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(60)
        return not thread.is_alive()

    def test_request_waits_no_longer_than_the_first_read_takes(self):
        self.flags(first_read_timeout=3600)
        self.assertTrue(self.end_of(self.cache.snapshot))
        failing = uplink_cache.UplinkCache(world.CONF, lambda *_: 1 / 0)
        self.addCleanup(failing.stop)
        self.assertTrue(self.end_of(failing.snapshot))

    def test_expire_causes_one_read(self):
        self.flags(snapshot_ttl=3600)
        self.cache.snapshot()
        before = len(self.reads)
        self.cache.expire()
        waiting.wait_for(lambda: len(self.reads) > before)
        time.sleep(0.2)
        self.assertEqual(before + 1, len(self.reads))

    def test_request_after_a_long_pause_causes_a_read(self):
        self.flags(snapshot_ttl=1000, snapshot_max_age=10_000)
        self.cache.snapshot()
        before = len(self.reads)
        real = time.monotonic
        self.useFixture(
            fixtures.MonkeyPatch('time.monotonic', lambda: real() + 5_000)
        )
        self.assertIsNone(self.cache.snapshot()[1])
        waiting.wait_for(lambda: len(self.reads) > before)
        self.assertLess(before, len(self.reads))

    def test_answer_of_an_abandoned_read_is_not_used(self):
        self.flags(snapshot_ttl=3600)
        others = reading_threads()
        self.cache.snapshot()
        (old,) = reading_threads() - others
        hang = threading.Event()
        self.addCleanup(hang.set)
        stale = {'provider_summaries': {}}
        self.cache._get = lambda *_: hang.wait(60) and stale
        self.flags(refresh_timeout=1)
        self.cache.expire()
        waiting.wait_for(lambda: self.cache._hangs())
        self.cache._get = self.get
        before = len(self.reads)
        self.cache.snapshot()
        waiting.wait_for(lambda: len(self.reads) > before)
        hang.set()
        old.join(60)
        self.assertFalse(old.is_alive())
        self.assertEqual(self.hosts, len(self.cache.snapshot()[0].hosts))

    def test_reset_ends_the_thread(self):
        self.flags(snapshot_ttl=3600)
        others = reading_threads()
        self.cache.snapshot()
        (thread,) = reading_threads() - others
        uplink_cache.reset()
        thread.join(60)
        self.assertFalse(thread.is_alive())


class PlacementTest(world.WorldTestCase):
    """Answers and errors of Placement."""

    def snapshot(self, status, text):
        response = mock.Mock(status_code=status, text=text)
        response.json.side_effect = lambda: json.loads(text)
        client = mock.Mock()
        client.get.return_value = response
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova.scheduler.client.report.report_client_singleton',
                lambda: client,
            )
        )
        cache = uplink_cache.UplinkCache(world.CONF)
        self.addCleanup(cache.stop)
        return cache.snapshot()

    def test_empty_answer_is_an_empty_snapshot(self):
        snapshot, reason = self.snapshot(200, '{"provider_summaries": {}}')
        self.assertIsNone(reason)
        self.assertEqual({}, snapshot.hosts)

    def test_unknown_trait_is_an_empty_snapshot(self):
        # The first agent creates the trait.
        snapshot, reason = self.snapshot(
            400, f'No such trait(s): {model.TRAIT_HOST}.'
        )
        self.assertIsNone(reason)
        self.assertEqual({}, snapshot.hosts)

    def test_other_errors_become_the_reason(self):
        for status, text in (
            (400, 'Unacceptable version'),
            (503, f'No {model.TRAIT_HOST} today'),
        ):
            snapshot, reason = self.snapshot(status, text)
            self.assertIsNone(snapshot)
            self.assertIn(f'answered {status}: {text}', reason)


class ProcessTest(world.WorldTestCase):
    """nova-scheduler's parent process and its forked workers."""

    def run_python(self, code):
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, 'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true'},
        )
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.split()

    def test_import_starts_no_thread_and_loads_no_eventlet(self):
        # As nova-scheduler does: from here on, importing eventlet raises with
        # Nova 34. Nova 33 itself imports it.
        self.assertEqual(
            ['1', 'True'],
            self.run_python(
                """
                import sys, threading
                from nova import monkey_patch
                monkey_patch.patch(backend='threading')
                import nova.scheduler.filters, nova.objects
                before = 'eventlet' in sys.modules
                from nova_vhpc.scheduler import filters, weights
                filters.VirtualClusterFilter()
                weights.VirtualClusterWeigher()
                print(threading.active_count())
                print(('eventlet' in sys.modules) == before)
                """
            ),
        )

    def test_forked_worker_has_a_thread_of_its_own(self):
        self.assertEqual(
            ['True', '0', 'vhpc-uplinks-1'],
            self.run_python(
                """
                import os, sys, threading
                from nova import conf, monkey_patch
                monkey_patch.patch(backend='threading')
                from nova_vhpc.conf import scheduler
                from nova_vhpc.scheduler.sources import uplink_cache as uplinks
                conf.CONF([], default_config_files=[], project='nova')
                scheduler.register_opts(conf.CONF)
                uplinks._get = lambda *_: {'provider_summaries': {}}
                parent = uplinks.for_process(conf.CONF)
                parent.snapshot()
                pid = os.fork()
                if pid == 0:
                    mine = uplinks.for_process(conf.CONF)
                    print(mine is not parent, flush=True)
                    worked = mine.snapshot()[1] is None
                    sys.stdout.flush()
                    os._exit(0 if worked else 1)
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                print(*(t.name for t in threading.enumerate()
                        if t.name.startswith('vhpc')))
                """
            ),
        )
