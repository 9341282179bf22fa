# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Set up Nova's databases by nova-manage's functions.

One process does the work of five calls of nova-manage. ``python -m
nova_vhpc_lab.stack.manage make NOVA_CONF CELL0_URL`` creates the schemas and
the cells. ``... discover NOVA_CONF HOSTS`` maps compute hosts until HOSTS of
them are mapped.
"""

import sys
import time

# Must be the first import: it decides that eventlet is not used.
from nova.cmd import manage

# isort: split
from nova import config, context, objects
from nova.objects import host_mapping

from nova_vhpc_lab.testbed.patience import PATIENCE_S, TooLongError

DONE = 'done'
"""Last line of the output of a successful run."""


def make(cell0_url: str) -> int:
    """Create the schemas of API, cell0 and cell1, and both cell mappings.

    :returns: exit status of the first step that failed, or 0.
    """
    cells = manage.CellV2Commands()
    return (
        manage.ApiDbCommands().sync()
        or cells.map_cell0(cell0_url)
        or manage.DbCommands().sync()
        or cells.create_cell(name='cell1')
    )


def discover(hosts: int) -> int:
    """Map compute hosts as they register.

    :param hosts: number of hosts to wait for.
    :returns: exit status, 0 if all were mapped in time.
    """
    admin = context.get_admin_context()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        host_mapping.discover_hosts(admin)
        if len(objects.HostMappingList.get_all(admin)) >= hosts:
            return 0
        time.sleep(0.5)
    print(
        TooLongError(f'fewer than {hosts} compute hosts registered'),
        file=sys.stderr,
    )
    return 1


def main() -> int:
    """Run the program."""
    what, path, argument = sys.argv[1:]
    config.parse_args(['nova-manage', '--config-file', path])
    objects.register_all()
    status = make(argument) if what == 'make' else discover(int(argument))
    if status == 0:
        print(DONE, flush=True)
    return status


if __name__ == '__main__':
    sys.exit(main())
