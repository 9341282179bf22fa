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

"""What an operator is told of VMs that were to be put back."""

import concurrent.futures
from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent.lifecycle import restore_queue


def report(
    tries: Mapping[str, restore_queue.RestoreAttempt], wait_s: float
) -> dict[str, Any]:
    """Wait for the first tries, but not for ever.

    :param tries: by the uuid of the VM.
    :param wait_s: for all together; who is not done then is told as failed,
        and put back later all the same.
    :returns: in values that JSON takes: ``restored`` uuids, ``failed`` with
        the reason by uuid, and ``unknown`` uuids that run here no more.
    """
    done = concurrent.futures.wait(tries.values(), wait_s).done
    answers = {
        uuid: one.result()
        if one in done
        else f'not done within {wait_s:g} s; it is still tried'
        for uuid, one in sorted(tries.items())
    }
    return {
        'restored': [
            u for u, text in answers.items() if text == restore_queue.DONE
        ],
        'failed': {
            uuid: text
            for uuid, text in answers.items()
            if text not in (restore_queue.DONE, restore_queue.GONE)
        },
        'unknown': [
            u for u, text in answers.items() if text == restore_queue.GONE
        ],
    }


def refused(server: str, reason: str | None) -> dict[str, Any]:
    """The same for a server that is none of our VMs.

    :param reason: why it is left alone; None if nobody here knows it.
    """
    return {
        'restored': [],
        'failed': {} if reason is None else {server: f'left alone: {reason}'},
        'unknown': [server] if reason is None else [],
    }
