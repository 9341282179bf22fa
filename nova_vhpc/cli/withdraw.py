# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-agent --withdraw``: removes its uplinks from Placement."""

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
    """Remove this host's uplinks from Placement.

    :returns: exit status: 0; 1 if Placement is away, claims keep some
        uplinks, or an agent has published them again.
    :raises AgentError: an agent is running, and would publish them again.
    """
    worker = publish_worker.PublishWorker(
        conf, conf.vhpc_agent.host or socket.gethostname()
    )
    try:
        withdrawal = worker.withdrawal()
        with _no_agent(conf):
            withdrawn = withdrawal.move_out()
        if withdrawn.moved and conf.withdraw_wait:
            # Printed, not logged: the log may be a file.
            _print(
                'withdrawn; the empty providers that are left go in '
                f'{conf.withdraw_wait} s, because a running nova-compute may '
                'still ask for them. You may interrupt this, and run it again '
                'later for the rest'
            )
            time.sleep(conf.withdraw_wait)
        with _no_agent(conf):
            republished = frozenset(withdrawal.delete()).difference(
                withdrawn.kept
            )
    except client.PlacementError as error:
        _print(str(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if republished:
        _print(
            f'{", ".join(sorted(republished))}: published again by an agent '
            'that ran meanwhile; keep it stopped, and run this again'
        )
        return 1
    _print(
        'withdrawn; deleted as far as no server has a claim'
        if withdrawn.kept
        else 'withdrawn, and all of it deleted'
    )
    for name in withdrawn.kept:
        _print(
            f'{name} is reserved, because servers still have claims on it; '
            'run this again when they are gone'
        )
    return 1 if withdrawn.kept else 0


@contextlib.contextmanager
def _no_agent(conf: cfg.ConfigOpts) -> Iterator[None]:
    """Keep any agent of this host from starting meanwhile."""
    lock = host_lock.Lock(conf.vhpc_agent.run_path)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _print(sentence: str) -> None:
    print(f'nova-vhpc-agent: {sentence}', file=sys.stderr)
