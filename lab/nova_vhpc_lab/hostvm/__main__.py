# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run the checks of this boot of the machine of ``tools/host-vm.sh``."""

import subprocess
import sys

from nova_vhpc_lab.hostvm import (
    first_boot,
    machine,
    playbook,
    report,
    second_boot,
)


def main() -> int:
    """Run the checks, and reboot the machine or end it."""
    is_second = (playbook.PLACE / 'rebooted').exists()
    results = report.Report(playbook.PLACE / 'results.json', '/dev/ttyS1')
    guests = machine.Guests(playbook.PLACE)
    if not is_second:
        results.run(first_boot.CHECKS, guests)
        (playbook.PLACE / 'rebooted').touch()
        results.say('rebooting')
        subprocess.run(['systemctl', 'reboot'], check=True)
        return 0
    results.run(second_boot.CHECKS, guests)
    results.say_totals()
    subprocess.run(['systemctl', 'poweroff'], check=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
