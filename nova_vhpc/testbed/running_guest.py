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


"""A guest of the lab that runs: its threads, and what they have done."""

import os
import re
from pathlib import Path
from typing import Any

from nova_vhpc.testbed import errors, guest, progress


class Running:
    """One guest that runs."""

    def __init__(self, spec: guest.GuestSpec, domain: Any, pid: int) -> None:
        self.spec = spec
        self.domain = domain
        self.pid = pid
        self.page = progress.ProgressPage(pid, guest.nonce_of(domain.name()))
        self.vcpu_threads = _vcpu_threads(pid)

    def schedstat(self) -> tuple[int, int, int]:
        """CPU time and wait (ns), and switches, of its vCPUs together.

        :raises LabError: when it runs no more.
        """
        ran = waited = switches = 0
        for thread in self.vcpu_threads:
            path = Path(f'/proc/{self.pid}/task/{thread}/schedstat')
            try:
                numbers = path.read_text().split()
            except OSError:
                raise self.ended() from None
            ran += int(numbers[0])
            waited += int(numbers[1])
            switches += int(numbers[2])
        return ran, waited, switches

    def other_threads(self) -> tuple[int, ...]:
        """Its QEMU's threads that are no vCPUs.

        :raises LabError: when it runs no more.
        """
        try:
            tasks = os.listdir(f'/proc/{self.pid}/task')
        except OSError:
            raise self.ended() from None
        return tuple(
            thread
            for thread in map(int, tasks)
            if thread not in self.vcpu_threads
        )

    def ended(self) -> errors.LabError:
        """What to say of a guest that runs no more."""
        return errors.LabError(
            f'guest {self.spec.name} has ended while it was measured; '
            'is there too little memory?'
        )


def _vcpu_threads(pid: int) -> tuple[int, ...]:
    """Thread ids of a QEMU process's vCPUs, in vCPU order."""
    found: dict[int, int] = {}
    for task in Path(f'/proc/{pid}/task').iterdir():
        match = re.match(r'CPU (\d+)/', (task / 'comm').read_text())
        if match:
            found[int(match.group(1))] = int(task.name)
    return tuple(found[vcpu] for vcpu in sorted(found))
