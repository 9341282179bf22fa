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

"""Build the kernel of busy guests: every vCPU runs a loop and never sleeps.

It starts within a moment and needs 32 MiB, so it suits tests that only need
something that uses CPU time.
"""

import importlib.resources
from pathlib import Path

from nova_vhpc.testbed import toolchain


def build(directory: Path) -> Path:
    """Return the kernel, for QEMU's ``-kernel``; built once per directory.

    :raises ImageError: gcc is missing or fails.
    """
    kernel = directory / 'spinner.elf'
    if not kernel.exists():
        programs = importlib.resources.files('nova_vhpc.testbed.programs')
        with importlib.resources.as_file(programs / 'spinner.S') as source:
            toolchain.run_tool(
                'gcc',
                '-m32',
                '-nostdlib',
                '-static',
                '-no-pie',
                '-Wl,-Ttext=0x100000,--build-id=none',
                '-o',
                str(kernel),
                str(source),
            )
    return kernel
