# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-hook``: removes another agent's settings from arriving domains.

libvirt calls it, by the script ``etc/nova-vhpc/libvirt-qemu-hook``, for a
domain that arrives by live migration or from a managed save. While it runs,
the migration waits, and libvirt accepts no calls about the domain.
"""

import argparse
import sys
import syslog

from nova_vhpc import version
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.restore import incoming
from nova_vhpc.cli import arguments
from nova_vhpc.linux import cpus

ARRIVALS = (('migrate', 'begin'), ('restore', 'begin'))
"""Operations, and sub-operations, in which a hook may change the XML."""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = arguments.ArgumentParser(
        prog='nova-vhpc-hook',
        description="libvirt's hook for servers that arrive by live "
        'migration or from a managed save. Reads the XML of a domain, and '
        'writes it without the settings of an agent on another host, as Nova '
        'has made it. Writes nothing if there is nothing to change.',
        epilog='libvirt calls it by /etc/libvirt/hooks/qemu.d/nova-vhpc.',
    )
    parser.add_argument('name', help='name of the domain')
    parser.add_argument(
        'operation', help='migrate or restore; any other is ignored'
    )
    parser.add_argument('sub_operation', help='begin; any other is ignored')
    parser.add_argument('extra', nargs='*', help='not used')
    version.add_argument(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Write the changed domain XML to stdout, if there is a change.

    :returns: always 0, because a hook that fails would stop the domain.
    """
    args, _ = make_parser().parse_known_args(argv)
    if (args.operation, args.sub_operation) not in ARRIVALS:
        return 0
    syslog.openlog('nova-vhpc-hook', syslog.LOG_PID, syslog.LOG_DAEMON)
    try:
        changed = incoming.with_original_settings(
            sys.stdin.read(), cpus.online_cpus()
        )
    except (ValueError, JournalError) as error:
        _log(
            syslog.LOG_WARNING,
            f'VM {args.name}: settings of another host stay: {error}',
        )
        return 0
    if changed is not None:
        # At once and whole, before the log can block: an incomplete document
        # would be an error to libvirt.
        sys.stdout.write(changed)
        sys.stdout.flush()
        _log(
            syslog.LOG_INFO,
            f'VM {args.name}: removed the settings of another host',
        )
    return 0


def _log(priority: int, text: str) -> None:
    """Write to syslog, too: libvirt does not show a hook's stderr."""
    syslog.syslog(priority, text)
    print(text, file=sys.stderr)
