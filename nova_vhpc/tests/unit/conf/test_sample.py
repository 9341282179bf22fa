# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The sample file in etc equals the generated one."""

import contextlib
import io
import pathlib
import re

from oslo_config import generator

from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
SAMPLE = TOP / 'etc' / 'nova-vhpc' / 'nova-vhpc.conf.sample'


def ours(text):
    """Return the sections of nova-vhpc; those of libraries vary."""
    sections = re.split(r'(?m)^(?=\[)', text)
    return {s.split(']')[0]: s for s in sections if s.startswith('[vhpc_')}


class SampleTest(base.TestCase):
    def test_sample_file_equals_the_generated_one(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            generator.main(['--namespace', 'nova_vhpc', '--wrap-width', '79'])
        generated = ours(out.getvalue())
        self.assertIn('[vhpc_agent', generated)
        # If not, run: tox -e genconfig
        self.assertEqual(generated, ours(SAMPLE.read_text()))
