# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Statements of other hosts that make no sense are left out, and named."""

from nova_vhpc.control import model
from nova_vhpc.control.validation import peers
from nova_vhpc.tests import base


class CheckTest(base.TestCase):
    def check(self, statements):
        diagnostics = []
        valid = peers.check(statements, diagnostics)
        return valid, [(one.uuid, one.reason) for one in diagnostics]

    def test_statement_of_another_type_is_left_out(self):
        peer = model.PeerView(io=True)
        self.assertEqual(
            ({'d': peer}, [('', 'what peers say of cluster c')]),
            self.check({'c': None, 'd': peer}),
        )

    def test_object_that_is_no_mapping_is_left_out(self):
        self.assertEqual(({}, [('', 'peers 3')]), self.check(3))

    def test_impossible_slice_is_left_out(self):
        for slice_us in (2_500.5, 0, -1, 'x', True):
            self.assertEqual(
                (
                    {'c': model.PeerView(io=True)},
                    [
                        (
                            '',
                            f'time slice {slice_us} us of cluster c on its '
                            'peers',
                        )
                    ],
                ),
                self.check(
                    {'c': model.PeerView(io=True, min_slice_us=slice_us)}
                ),
            )
