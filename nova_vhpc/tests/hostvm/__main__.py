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

"""Run the checks of this boot of the machine of ``tools/host-vm.sh``."""

import subprocess
import sys

from nova_vhpc.tests.hostvm import (
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
