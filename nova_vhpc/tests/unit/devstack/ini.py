# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""INI editing for the devstack harness: get|set|delete FILE SECTION OPTION.

Keeps repeated options, as oslo.config's MultiStrOpt needs. ``get`` prints
all values on one line, ``set`` replaces them by the values given, ``delete``
by none.
"""

import pathlib
import sys


def _lines(path):
    return path.read_text().splitlines() if path.exists() else []


def _is_option(line, option):
    return '=' in line and line.split('=', 1)[0].strip() == option


def main(action, file, section, option, *values):
    path = pathlib.Path(file)
    kept, found, current, at = [], [], None, None
    for line in _lines(path):
        if line.startswith('['):
            current = line.strip('[] ')
        if current == section and _is_option(line, option):
            found.append(line.split('=', 1)[1].strip())
            continue
        kept.append(line)
        if line == f'[{section}]':
            at = len(kept)
    if action == 'get':
        print(' '.join(found))
        return
    if action == 'delete':
        path.write_text('\n'.join(kept) + '\n')
        return
    if at is None:
        kept.append(f'[{section}]')
        at = len(kept)
    kept[at:at] = [f'{option} = {value}' for value in values]
    path.write_text('\n'.join(kept) + '\n')


if __name__ == '__main__':
    main(*sys.argv[1:])
