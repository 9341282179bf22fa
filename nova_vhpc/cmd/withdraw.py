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

"""``nova-vhpc-agent --withdraw``: this host goes out of Placement."""

import contextlib
import signal
import socket
import sys
import time
from collections.abc import Iterator

from oslo_config import cfg

from nova_vhpc.agent import host_lock
from nova_vhpc.agent.uplinks import publish_worker
from nova_vhpc.placement import client


def withdraw(conf: cfg.ConfigOpts) -> int:
    """Take this host's uplinks out of Placement.

    :returns: 0; 1 when Placement is away, claims keep some of them, or an
        agent has published them again.
    :raises AgentError: an agent runs; it would publish them again.
    """
    worker = publish_worker.PublishWorker(
        conf, conf.vhpc_agent.host or socket.gethostname()
    )
    try:
        away = worker.withdrawal()
        with _no_agent(conf):
            withdrawn = away.move_out()
        if withdrawn.moved and conf.withdraw_wait:
            # Not for the log, which may be a file that nobody looks into now.
            _say(
                'withdrawn; what is left, empty and of no node, goes in '
                f'{conf.withdraw_wait} s, as a nova-compute that runs may '
                'still ask for it. To end this earlier does no harm: run it '
                'again for the rest'
            )
            time.sleep(conf.withdraw_wait)
        with _no_agent(conf):
            back = frozenset(away.delete()).difference(withdrawn.kept)
    except client.PlacementError as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if back:
        _say(
            f'{", ".join(sorted(back))}: published again by an agent that '
            'ran meanwhile; leave it stopped, and run this again'
        )
        return 1
    _say(
        'withdrawn and deleted as far as no server has a claim on it'
        if withdrawn.kept
        else 'withdrawn, and all of it deleted'
    )
    for name in withdrawn.kept:
        _say(
            f'{name} is reserved, as servers still have claims on it; run '
            f'this again when they are gone'
        )
    return 1 if withdrawn.kept else 0


@contextlib.contextmanager
def _no_agent(conf: cfg.ConfigOpts) -> Iterator[None]:
    guard = host_lock.Lock(conf.vhpc_agent.run_path)
    guard.acquire()
    try:
        yield
    finally:
        guard.release()


def _say(sentence: str) -> None:
    print(f'nova-vhpc-agent: {sentence}', file=sys.stderr)
