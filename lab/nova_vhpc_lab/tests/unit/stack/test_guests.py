# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


from nova_vhpc.tests import base
from nova_vhpc_lab.stack import guests


class TestWithEffect(base.TestCase):
    def test_unlimited_domain_without_pins_is_like_one_without_cputune(self):
        restored = """<cputune>
            <period>100000</period>
            <quota>-1</quota>
            <shares>1024</shares>
            <vcpupin vcpu='0' cpuset='0-1'/>
            <emulatorpin cpuset='0-1'/>
          </cputune>"""
        self.assertEqual('', guests.with_effect(restored))
        self.assertEqual('', guests.with_effect(''))

    def test_values_that_a_domain_without_cputune_lacks_are_kept(self):
        for element in (
            '<shares>2048</shares>',
            '<period>20000</period>',
            '<quota>4000</quota>',
        ):
            self.assertIn(
                element, guests.with_effect(f'<cputune> {element} </cputune>')
            )
