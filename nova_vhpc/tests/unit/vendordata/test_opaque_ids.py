# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.tests import base
from nova_vhpc.vendordata import opaque_ids

_IDS = st.text('abc-0123456789', min_size=1, max_size=32)
_NAMES = st.text(st.characters(exclude_characters='\0'), max_size=64)
_SECRETS = st.binary(min_size=16, max_size=64)


class OpaqueIdsTest(base.TestCase):
    @given(_IDS, _IDS, _NAMES, _NAMES, _SECRETS)
    def test_ids_differ_by_project_kind_and_name(
        self, project, other_project, name, other_name, secret
    ):
        ids = opaque_ids.OpaqueIds(project, secret)
        found = {ids.host(name), ids.switch(name), ids.rack(name)}
        self.assertEqual(3, len(found))
        # Another server of the operator's with the same secret agrees.
        again = opaque_ids.OpaqueIds(project, secret)
        self.assertEqual(ids.host(name), again.host(name))
        others = opaque_ids.OpaqueIds(other_project, secret)
        self.assertEqual(
            project == other_project, ids.host(name) == others.host(name)
        )
        self.assertEqual(
            name == other_name, ids.host(name) == ids.host(other_name)
        )

    @given(_SECRETS, _SECRETS)
    def test_ids_cannot_be_made_without_the_secret(self, secret, guess):
        right, wrong = (opaque_ids.OpaqueIds('p', s) for s in (secret, guess))
        self.assertEqual(
            # A key is padded with null bytes to a block.
            secret.rstrip(b'\0') == guess.rstrip(b'\0'),
            right.host('cn-1') == wrong.host('cn-1'),
        )

    def test_secret_is_not_shown(self):
        ids = opaque_ids.OpaqueIds('p', b'do-not-tell-anyone')
        self.assertNotIn('do-not-tell', repr(ids))
        self.assertNotIn(b'hunter2', opaque_ids.derived('hunter2'))
