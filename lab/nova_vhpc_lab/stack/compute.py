# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""nova-compute with live migration between two hosts of one machine.

The hosts share the directory of instances. libvirt refuses a live migration
unless the disks are on a file system that it knows to be shared, like NFS.
Nova is the released one, except that it passes the flag that skips this check.
"""

import sys
from typing import Any

# Must be the first import: it decides that eventlet is not used.
from nova.cmd import compute

# isort: split
import libvirt
from nova.virt.libvirt import guest

_migrate = guest.Guest.migrate


def _migrate_unsafely(
    self: guest.Guest, *args: Any, flags: int = 0, **options: Any
) -> None:
    _migrate(self, *args, flags=flags | libvirt.VIR_MIGRATE_UNSAFE, **options)


if __name__ == '__main__':
    guest.Guest.migrate = _migrate_unsafely
    sys.exit(compute.main())
