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

"""``nova-vhpc-hook``: libvirt asks it what to make of a VM that comes.

Called by the script ``etc/nova-vhpc/libvirt-qemu-hook``. While it runs, the
migration waits for it, and libvirt takes no calls about the VM.
"""

import argparse
import sys
import syslog

from nova_vhpc import version
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.restore import incoming
from nova_vhpc.linux import cpus

ARRIVALS = (('migrate', 'begin'), ('restore', 'begin'))
"""Operations with a domain's XML that libvirt lets a hook change."""


def main(argv: list[str] | None = None) -> int:
    """Answer libvirt. A hook that fails would stop the VM: it never does."""
    parser = argparse.ArgumentParser(
        prog='nova-vhpc-hook',
        description="libvirt's hook for VMs that come by live migration or "
        'from a managed save: reads the XML of a domain, and writes it as '
        'Nova has made it. What an agent elsewhere has set is taken out. '
        'Writes nothing if there is nothing to change.',
        epilog='libvirt calls it by /etc/libvirt/hooks/qemu.d/nova-vhpc.',
    )
    parser.add_argument('name', help='of the domain')
    parser.add_argument('operation', help="libvirt's word: migrate, restore")
    parser.add_argument('sub_operation', help='begin; others are ignored')
    parser.add_argument('extra', nargs='*', help='not used')
    version.add_argument(parser)
    args, _ = parser.parse_known_args(argv)
    if (args.operation, args.sub_operation) not in ARRIVALS:
        return 0
    syslog.openlog('nova-vhpc-hook', syslog.LOG_PID, syslog.LOG_DAEMON)
    try:
        changed = incoming.without_us(sys.stdin.read(), cpus.online_cpus())
    except (ValueError, store.JournalError) as error:
        _say(syslog.LOG_WARNING, f'VM {args.name}: left as it came: {error}')
        return 0
    if changed is not None:
        # Whole, before anything else can hold us up: half of it would be an
        # error to libvirt, nothing is none.
        sys.stdout.write(changed)
        sys.stdout.flush()
        _say(
            syslog.LOG_INFO,
            f'VM {args.name}: arrives without what an agent has set elsewhere',
        )
    return 0


def _say(priority: int, text: str) -> None:
    """To the system's log: libvirt keeps what a hook prints to itself."""
    syslog.syslog(priority, text)
    print(text, file=sys.stderr)
