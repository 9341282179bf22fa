# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Build the kernel of busy guests: every vCPU runs a loop and never sleeps.

It starts within a moment and needs 32 MiB, so it suits tests that only need
something that uses CPU time.
"""

import importlib.resources
from pathlib import Path

from nova_vhpc_lab.testbed import toolchain


def build(directory: Path) -> Path:
    """Return the kernel, for QEMU's ``-kernel``; built once per directory.

    :raises ImageError: gcc is missing or fails.
    """
    kernel = directory / 'spinner.elf'
    if not kernel.exists():
        programs = importlib.resources.files('nova_vhpc_lab.testbed.programs')
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
