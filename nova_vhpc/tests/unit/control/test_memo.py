# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The last result is kept while the arguments are equal."""

from unittest import mock

from nova_vhpc.control import memo
from nova_vhpc.tests import base


class LastCallTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.function = mock.Mock(side_effect=lambda *args: list(args))
        self.last_call = memo.LastCall(self.function)

    def test_equal_arguments_return_the_same_object(self):
        first = self.last_call([1], 'a')
        self.assertEqual([[1], 'a'], first)
        self.assertIs(first, self.last_call([1], 'a'))
        self.assertEqual(1, self.function.call_count)

    def test_other_arguments_call_the_function_again(self):
        for args in ((1,), (2,), (1,)):
            self.assertEqual(list(args), self.last_call(*args))
        self.assertEqual(3, self.function.call_count)

    def test_identical_argument_is_not_compared(self):
        nan = float('nan')
        self.assertIs(self.last_call(nan), self.last_call(nan))

    def test_failed_call_is_not_remembered(self):
        self.function.side_effect = ValueError
        self.assertRaises(ValueError, self.last_call, 1)
        self.assertRaises(ValueError, self.last_call, 1)
