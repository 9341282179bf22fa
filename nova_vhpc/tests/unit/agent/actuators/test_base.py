# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Loading of the actuators that the configuration names."""

import fixtures
from oslo_config import cfg
from oslotest import base as test_base

from nova_vhpc.agent import errors
from nova_vhpc.agent.actuators import base, kernel_slice, libvirt_cputune
from nova_vhpc.conf import agent as agent_conf


class TestLoader(test_base.BaseTestCase):
    def load(self, *names: str) -> list:
        conf = cfg.ConfigOpts()
        agent_conf.register_opts(conf)
        conf([], default_config_files=[])
        conf.set_override('actuators', names, 'vhpc_agent')
        return base.load_actuators(conf)

    def test_actuator_is_loaded_by_its_name(self) -> None:
        (actuator,) = self.load('libvirt')
        self.assertIsInstance(actuator, libvirt_cputune.LibvirtCputuneActuator)

    def test_actuator_that_cannot_work_is_left_out_with_a_warning(
        self,
    ) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.agent.actuators.kernel_slice.'
                'KernelSliceActuator.check',
                lambda self: 'the kernel is too old',
            )
        )
        (actuator,) = self.load('kernel_slice', 'libvirt')
        self.assertNotIsInstance(actuator, kernel_slice.KernelSliceActuator)
        self.assertIn('the kernel is too old', log.output)

    def test_error_names_the_allowed_actuators(self) -> None:
        for names in (('magic',), ()):
            error = self.assertRaises(errors.ConfigError, self.load, *names)
            self.assertIn('allowed: kernel_slice, libvirt', str(error))

    def test_slices_of_threads_are_reported_whatever_the_order(self) -> None:
        conf = cfg.ConfigOpts()
        agent_conf.register_opts(conf)
        conf([], default_config_files=[])
        by_libvirt = libvirt_cputune.LibvirtCputuneActuator(conf)
        by_kernel = kernel_slice.KernelSliceActuator(conf)
        self.assertFalse(base.common_limits([by_libvirt]).thread_slices)
        limits = base.common_limits([by_libvirt, by_kernel])
        self.assertTrue(limits.thread_slices)
        self.assertEqual(
            by_libvirt.limits().effective_min_slice_us,
            limits.effective_min_slice_us,
        )
