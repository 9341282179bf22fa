# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.probes.sampler`."""

from oslotest import base

from nova_vhpc.agent.probes import base as probe_base
from nova_vhpc.agent.probes import sampler
from nova_vhpc.control import model


class Sync:
    """A reader that returns the given readings."""

    def __init__(self, *readings: probe_base.SyncReading | None) -> None:
        self.readings = list(readings)

    def read(self) -> probe_base.SyncReading | None:
        return self.readings.pop(0)


class Io(Sync):
    """A reader that returns the given numbers of events."""


def ticks(reader: sampler.VmReader, number: int) -> list[model.Sample]:
    """Return the samples of a number of ticks of 100 ms."""
    return [
        reader.read(1_000_000 + tick * 100_000, 100_000)
        for tick in range(number)
    ]


READING = probe_base.SyncReading(10.0, (1.0,), (10.0,), (3,))


class TestVmReader(base.BaseTestCase):
    def test_sample_is_scaled_to_the_period(self) -> None:
        reader = sampler.VmReader([Sync(None, READING)], [Io(None, 50.0)])
        self.assertIsNone(reader.read(1_000_000, 100_000).sync_latency_us)
        sample = reader.read(1_200_000, 100_000)
        self.assertEqual(5.0, sample.sync_latency_us)
        self.assertEqual(25.0, sample.io_events)
        self.assertEqual((10.0,), sample.vcpu_wait_us)
        self.assertEqual((3,), sample.vcpu_runs)
        self.assertEqual(200_000, sample.elapsed_us)

    def test_readings_of_all_probes_are_added(self) -> None:
        spin = probe_base.SyncReading(7.0)
        reader = sampler.VmReader(
            [Sync(None, READING), Sync(None, spin)],
            [Io(None, 1.0), Io(None, 2.0)],
        )
        reader.read(1_000_000, 100_000)
        sample = reader.read(1_100_000, 100_000)
        self.assertEqual(17.0, sample.sync_latency_us)
        self.assertEqual(3.0, sample.io_events)
        self.assertEqual((1.0,), sample.vcpu_run_us)

    def test_values_that_no_policy_follows_are_read_seldom(self) -> None:
        reader = sampler.VmReader(
            [Sync(None, READING)], [Io(None, 9.0, 25.0)], every=3, io_every=3
        )
        reader.read(1_000_000, 100_000)
        for tick in (1, 2, 3, 4):
            sample = reader.read(1_000_000 + tick * 100_000, 100_000)
            if tick == 1:
                self.assertIsNone(sample.sync_latency_us)
            elif tick == 2:
                self.assertEqual(200_000, sample.elapsed_us)
                self.assertEqual((10.0,), sample.vcpu_wait_us)
            else:
                # What was measured once must not be counted twice.
                self.assertIsNone(sample.elapsed_us)
                self.assertIsNone(sample.vcpu_wait_us)
            if tick > 1:
                # Otherwise the last values are returned again.
                self.assertEqual(5.0, sample.sync_latency_us)
                self.assertEqual(25.0, sample.io_events)
                self.assertEqual(0.5, reader.run_us(100_000))

    def test_io_events_alone_can_be_read_seldom(self) -> None:
        reader = sampler.VmReader(
            [Sync(None, *[READING] * 5)],
            [Io(None, 30.0, 60.0, 90.0)],
            io_every=3,
        )
        events = [sample.io_events for sample in ticks(reader, 6)]
        self.assertEqual([None, 30.0, 60.0, 60.0, 60.0, 30.0], events)

    def test_latency_alone_can_be_read_seldom(self) -> None:
        reader = sampler.VmReader(
            [Sync(None, READING)], [Io(None, 1.0, 2.0, 3.0)], every=3
        )
        samples = ticks(reader, 4)
        self.assertEqual(
            [(None, None), (None, 1.0), (5.0, 2.0), (5.0, 3.0)],
            [(one.sync_latency_us, one.io_events) for one in samples],
        )

    def test_unchanged_values_return_the_same_sample(self) -> None:
        reader = sampler.VmReader(
            [Sync(None, READING)], [Io(None, 2.0, 2.0, 3.0)], every=9
        )
        samples = ticks(reader, 4)
        self.assertIs(samples[1], samples[2])
        self.assertEqual(3.0, samples[3].io_events)

    def test_what_no_probe_delivers_is_unmeasured(self) -> None:
        reader = sampler.VmReader(
            [Sync(None, READING, None, READING)], [Io(None, None, 1.0, None)]
        )
        unmeasured = []
        for tick in range(4):
            reader.read(1_000_000 + tick * 100_000, 100_000)
            unmeasured.append(reader.unmeasured())
        self.assertEqual(
            [[], ['io_events'], ['latency'], ['io_events']], unmeasured
        )

    def test_vm_without_probes_is_unmeasured_at_once(self) -> None:
        reader = sampler.VmReader([], [])
        self.assertEqual(['latency', 'io_events'], reader.unmeasured())
        reader = sampler.VmReader([], [], expected=(True, False))
        self.assertEqual(['latency'], reader.unmeasured())

    def test_reader_is_dead_if_the_latency_is_missing_later(
        self,
    ) -> None:
        reader = sampler.VmReader([Sync(None, READING, None)], [])
        reader.read(1_000_000, 100_000)
        self.assertFalse(reader.dead)
        reader.read(1_100_000, 100_000)
        self.assertFalse(reader.dead)
        sample = reader.read(1_200_000, 100_000)
        self.assertTrue(reader.dead)
        self.assertIsNone(sample.sync_latency_us)

    def test_reader_is_dead_if_a_nic_was_plugged_in_again(self) -> None:
        reader = sampler.VmReader(
            [Sync(None, *[READING] * 4)],
            # A reader that never returned events does not make it dead.
            [Io(None, 5.0, 5.0, None, 5.0), Io(*[None] * 5)],
        )
        dead = []
        for tick in range(5):
            reader.read(1_000_000 + tick * 100_000, 100_000)
            dead.append(reader.dead)
        self.assertEqual([False, False, False, True, True], dead)
