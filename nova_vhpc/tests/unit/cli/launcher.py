# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run console scripts as if libraries were not installed."""

import subprocess
import sys
from collections.abc import Iterable

CODE = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in blocked:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)

value, blocked = sys.argv[1], sys.argv[2].split(',')
sys.argv[:3] = ['script']
sys.meta_path.insert(0, Blocker())
modules, _, function = value.partition(':')
for module in modules.split(','):
    loaded = importlib.import_module(module)
sys.exit(getattr(loaded, function)() if function else 0)
"""


def run_without(
    libraries: Iterable[str], entry_point: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run an entry point in a Python that cannot import some libraries.

    :param libraries: top-level modules that cannot be imported.
    :param entry_point: ``module:function``, or modules to import only,
        separated by commas.
    :param arguments: command line of the script.
    """
    return subprocess.run(
        [
            sys.executable,
            '-c',
            CODE,
            entry_point,
            ','.join(libraries),
            *arguments,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
