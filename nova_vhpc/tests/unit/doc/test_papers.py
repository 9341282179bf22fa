# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The page that says where each piece of the papers is."""

import pathlib
import re

from nova_vhpc.tests import base

_ROOT = pathlib.Path(__file__).parents[4]
_PLACES = ('', 'nova_vhpc', 'nova_vhpc/control', 'lab/nova_vhpc_lab')


class PapersTest(base.TestCase):
    def test_what_it_names_is_there(self):
        text = (_ROOT / 'doc/source/contributor/papers.rst').read_text()
        paths = re.findall(r'``([a-z_]+/[a-z_/.]+)``', text)
        self.assertIn('slices/atc.py', paths)
        self.assertEqual(
            [],
            [
                path
                for path in paths
                if not any((_ROOT / p / path).exists() for p in _PLACES)
            ],
        )

    def test_every_paper_is_there(self):
        text = (_ROOT / 'doc/source/contributor/papers.rst').read_text()
        for paper in ('ATC', 'I/O perception', "HPCVirt'09", "NPC'09"):
            self.assertRegex(text, rf'(?m)^{paper}[^\n]*\n===')
