# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The script of the tenant's page writes what the service answers."""

import json
import os
import pathlib
import re
import subprocess
import textwrap

import fixtures

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import answer

PAGE = (
    pathlib.Path(__file__).parents[4] / 'doc/source/user/virtual-clusters.rst'
)
_CURL = """\
#!/bin/sh
cat "$(dirname "$0")/vendor_data2.json"
"""


class UserPageTest(base.TestCase):
    def test_files_are_written_as_answered(self):
        match = re.search(
            r'code-block:: sh\n\n((?:   .*\n|\n)+)', PAGE.read_text()
        )
        cluster = fakes.cluster([fakes.member(1, 'h1'), fakes.member(2, 'h1')])
        answered = answer.answer(cluster, fakes.uuid(1))
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (path / 'vendor_data2.json').write_text(
            json.dumps({'static': {}, 'vhpc': answered})
        )
        (path / 'curl').write_text(_CURL)
        (path / 'curl').chmod(0o755)
        (path / 'vhpc-files').write_text(textwrap.dedent(match[1]))
        subprocess.run(
            ['sh', '-u', 'vhpc-files'],
            cwd=path,
            env={'PATH': f'{path}:{os.environ["PATH"]}'},
            check=True,
        )
        for name, text in (
            *((f'hosts.{k}', v) for k, v in answered['hostfile'].items()),
            ('hosts.ipv6', answered['hosts']),
            *(
                (f'flags.{k}', ' '.join(answered['mpi'][k]))
                for k in ('openmpi', 'openmpi5', 'mpich')
            ),
            ('vhpc-run', answered['mpi']['wrapper']),
            ('vhpc-routes', answered['routes_script']),
        ):
            self.assertEqual(text, (path / name).read_text(), name)
        self.assertTrue(os.access(path / 'vhpc-run', os.X_OK))
