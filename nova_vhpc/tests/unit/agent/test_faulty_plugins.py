# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A failing plugin stops nothing else, and the log names it."""

import types
from typing import Any
from unittest import mock

import fixtures
from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent import errors
from nova_vhpc.agent.actuators import libvirt_cputune
from nova_vhpc.agent.daemon import controller_factory
from nova_vhpc.agent.probes import base as probe_base
from nova_vhpc.agent.probes import sampler
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.conf import control as control_conf
from nova_vhpc.tests.unit.agent.daemon import test_controller_factory
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case
from nova_vhpc.tests.unit.agent.probes import test_sampler


def fail(*args: Any) -> Any:
    """Raise an unexpected exception."""
    raise KeyError('a fault')


class TestProbes(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))

    def probe(self, **faulty: Any) -> Any:
        """Return a probe that works, except for the given methods."""
        reader = types.SimpleNamespace(
            read=lambda: faulty.get('value', 5.0), close=lambda: None
        )
        for name in ('read', 'close'):
            if name in faulty:
                setattr(reader, name, faulty[name])
        return types.SimpleNamespace(
            covers=frozenset(),
            check=faulty.get('check', lambda: None),
            attach=faulty.get('attach', lambda target: reader),
        )

    def samples(self, faulty: Any, sync: bool) -> list[Any]:
        """Return samples of a VM with one working and one faulty probe."""
        sound = self.probe()
        good_sync = self.probe(value=test_sampler.READING)
        made = sampler.Sampler(
            [('bad', faulty), ('good', good_sync)] if sync else [],
            [('good', sound)] if sync else [('bad', faulty), ('good', sound)],
        )
        reader = made.attach(mock.Mock(spec=probe_base.Target))
        samples = test_sampler.ticks(reader, 3)
        reader.close()
        return samples

    def test_other_probes_are_read_if_one_fails(self) -> None:
        for name in ('check', 'attach', 'read'):
            last = self.samples(self.probe(**{name: fail}), sync=False)[-1]
            self.assertEqual(5.0, last.io_events, name)
            last = self.samples(self.probe(**{name: fail}), sync=True)[-1]
            self.assertEqual(5.0, last.io_events, name)
            self.assertEqual(10.0, last.sync_latency_us, name)
            self.assertIn("KeyError('a fault')", self.log.output)

    def test_value_that_is_no_number_is_ignored(self) -> None:
        last = self.samples(self.probe(value='many'), sync=False)[-1]
        self.assertEqual(5.0, last.io_events)

    def test_failing_probe_is_logged_once(self) -> None:
        self.samples(self.probe(read=fail, close=fail), sync=False)
        self.assertEqual(1, self.log.output.count('a fault'))


class ActuatorTest(manager_case.ManagerTestCase):
    def test_failing_write_counts_as_refused_and_is_restored(self) -> None:
        guest = self.look()

        write = self.actuator.write

        def fail_after_write(*args: Any) -> None:
            write(*args)
            fail()

        self.actuator.write = fail_after_write
        self.write(guest)
        self.assertEqual(1, guest.failures.count)
        self.assertIn('a fault', guest.failures.problem)
        self.assertTrue(self.manager.stop(manager_case.PATIENCE_S))
        self.assert_put_back()


class TestStart(base.BaseTestCase):
    """A plugin that cannot be made is reported with its option."""

    def refused(self, call: Any, plugin: Any) -> str:
        with mock.patch('nova_vhpc.agent.plugins.load', return_value=plugin):
            error = self.assertRaises(errors.ConfigError, call)
        self.assertNotIn('\n', str(error))
        return str(error)

    def test_error_names_the_option_of_a_failing_policy(self) -> None:
        conf = cfg.ConfigOpts()
        control_conf.register_opts(conf)
        conf([], default_config_files=[])
        text = self.refused(
            lambda: controller_factory.make_controller(
                conf, test_controller_factory.CPUS
            ),
            fail,
        )
        self.assertIn('[vhpc_control]slice_policy = gang: failed: K', text)

    def actuator(self, *names: str) -> Any:
        conf = cfg.ConfigOpts()
        agent_conf.register_opts(conf)
        conf([], default_config_files=[])
        conf.set_override('actuators', names, 'vhpc_agent')
        return libvirt_cputune.load(conf)

    def test_actuator_is_loaded_by_its_name(self) -> None:
        self.assertIsInstance(
            self.actuator('libvirt'), libvirt_cputune.LibvirtCputuneActuator
        )

    def test_error_names_the_allowed_actuators(self) -> None:
        for names in (('magic',), (), ('libvirt', 'libvirt')):
            error = self.assertRaises(
                errors.ConfigError, self.actuator, *names
            )
            self.assertIn('allowed: libvirt', str(error))

    def test_error_names_the_option_of_a_failing_actuator(self) -> None:
        for plugin in (fail, lambda conf: types.SimpleNamespace(limits=fail)):
            text = self.refused(lambda: self.actuator('x'), plugin)
            self.assertIn("[vhpc_agent]actuators = 'x': failed: Key", text)
