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

"""Whether anything may be written at all, and to whom not."""

import threading


class WritePermission:
    """What speaks against a write, whatever the VM.

    :ivar dry_run: nothing is ever written.
    :ivar paused: nothing is written on an operator's word.
    :ivar ending: the agent stops; what is to be put back, is still.
    :ivar restored: uuids of VMs that are left alone on an operator's word.
    :ivar leaving: uuids of servers that Nova says are migrating.
    """

    def __init__(self, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.paused = False
        self.ending = threading.Event()
        self.restored: set[str] = set()
        self.leaving: frozenset[str] = frozenset()

    @property
    def open(self) -> bool:
        """Whether VMs may be written."""
        return not (self.dry_run or self.paused or self.ending.is_set())
