# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What every unit test of nova-vhpc starts from."""

import logging

from oslotest import base


class TestCase(base.BaseTestCase):
    """Captures output and logs; ends a test that hangs (OS_TEST_TIMEOUT)."""

    def setUp(self) -> None:
        super().setUp()
        # Messages of one test must not depend on the level another set.
        logging.getLogger('nova_vhpc').setLevel(logging.DEBUG)
