# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The program ``nova-vhpc-hosts`` as one file, for guests.

Guests have neither this package nor its dependencies: the modules of the
program follow each other in one text, without what they import of each other.
"""

import functools
import importlib.resources
import re

_MODULES = (
    'topology_files',
    'launcher_files',
    'report',
    'waiting',
    'waiting_statistics',
    'metadata',
    'hosts_program',
)

_PACKAGE = __package__

_OWN_IMPORT = re.compile(
    r'^from nova_vhpc\.\S+ import (?:\([^)]*\)|[^\n]*)\n', re.MULTILINE
)


@functools.cache
def script() -> str:
    """Return the program as the text of one file."""
    return '#!/usr/bin/env python3\n' + '\n\n'.join(
        _body(module, first=module == _MODULES[0]) for module in _MODULES
    )


def _body(module: str, first: bool) -> str:
    """Return the text of a module.

    :param first: whether to keep the licence, which all begin with.
    """
    text = (
        importlib.resources.files(_PACKAGE)
        .joinpath(f'{module}.py')
        .read_text(encoding='utf-8')
    )
    licence, code = text.split('\n\n', 1)
    body = _OWN_IMPORT.sub('', code).strip() + '\n'
    return f'{licence}\n\n{body}' if first else body


if __name__ == '__main__':
    print(script(), end='')
