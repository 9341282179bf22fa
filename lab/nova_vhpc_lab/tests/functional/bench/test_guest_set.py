# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A mix of real guests is started, measured and removed together."""

import os
import signal
import time
from pathlib import Path

import testtools

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import mixes, runner
from nova_vhpc_lab.bench.lab.guest_set import GuestSet
from nova_vhpc_lab.testbed import errors, image
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class TestGuestSet(base.TestCase):
    """The guests of a mix on a private libvirtd and bridge."""

    def test_network_guests_make_progress_and_leave_nothing(self):
        mix = mixes.Mix(
            'test',
            'network',
            tuple(
                one
                for name in ('phased', 'pingpong', 'web')
                for one in mixes.MIXES[name].guests
                if one.network
            ),
        )
        with GuestSet(mix, image.build_image()) as guest_set:
            root, bridge = guest_set.root, guest_set.bridge
            deadline = time.monotonic() + PATIENCE_S
            rates, answers = {}, []
            while not answers or min(rates.values()) <= 0:
                if time.monotonic() > deadline:
                    self.fail(f'{rates}, {len(answers)} answers')
                rates = guest_set.measure(1)
                answers += guest_set.web.take()
            self.assertGreater(min(answers), 0)
        self.assertFalse(root.exists())
        self.assertFalse(Path('/sys/class/net', bridge).exists())

    def test_other_clusters_stand_still_while_one_runs_alone(self):
        with GuestSet(
            mixes.MIXES['clusters'], image.build_image()
        ) as guest_set:
            with guest_set.pinned_apart(('a',)), guest_set.only(('a',)):
                rates = guest_set.measure(0.5)
            self.assertEqual(0, rates['b'])
            self.assertEqual(0, rates['c'])
            self.assertGreater(rates['a'], 0)


class TestGuestThatEnds(base.TestCase):
    """A guest ends while it is measured, as by the OOM killer."""

    def test_error_names_the_guest_that_ended(self):
        mix = mixes.MIXES['alone']
        (name,) = (one.name for one in mix.guests)
        with GuestSet(mix, image.build_image()) as guest_set:
            self.assertGreater(guest_set.cpu_seconds()[name], 0)
            os.kill(guest_set.guests[name].pid, signal.SIGKILL)
            deadline = time.monotonic() + PATIENCE_S
            while Path(f'/proc/{guest_set.guests[name].pid}').exists():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)
            error = self.assertRaises(errors.LabError, guest_set.cpu_seconds)
            self.assertIn(f'guest {name} has ended', str(error))
            with testtools.ExpectedException(
                errors.LabError, f'guest {name} has ended'
            ):
                runner.measure_alone(guest_set, runner.Timing())
