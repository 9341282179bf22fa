# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Answers to the control calls that restore or resume servers, for JSON."""

import concurrent.futures
from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent.lifecycle.restore_queue import DONE, GONE, RestoreAttempt


def restored(
    attempts: Mapping[str, RestoreAttempt], wait_s: float
) -> dict[str, Any]:
    """Wait for the first attempts to restore servers; return the outcome.

    :param attempts: first attempt to restore each server, by its UUID.
    :param wait_s: longest time to wait for all of them, in seconds. A server
        that is not restored by then is reported as failed, and retried.
    :returns: ``restored`` UUIDs, ``failed`` with the reason by UUID, and
        ``unknown`` UUIDs of servers that do not run on this host.
    """
    done = concurrent.futures.wait(attempts.values(), wait_s).done
    outcomes = {
        uuid: attempt.result()
        if attempt in done
        else f'not done within {wait_s:g} s; it will be retried'
        for uuid, attempt in sorted(attempts.items())
    }
    return {
        'restored': [
            uuid for uuid, outcome in outcomes.items() if outcome == DONE
        ],
        'failed': {
            uuid: outcome
            for uuid, outcome in outcomes.items()
            if outcome not in (DONE, GONE)
        },
        'unknown': [
            uuid for uuid, outcome in outcomes.items() if outcome == GONE
        ],
    }


def refused(server: str, reason: str | None) -> dict[str, Any]:
    """Return the outcome of restoring a server that is not managed.

    :param reason: why it is not managed; None if it is unknown.
    """
    return {
        'restored': [],
        'failed': {} if reason is None else {server: f'left alone: {reason}'},
        'unknown': [server] if reason is None else [],
    }


def resumed(server: str, reason: str | None) -> dict[str, Any]:
    """Return the outcome of resuming one server.

    :param reason: why it is not resumed; empty if it is, None if the server
        is unknown.
    """
    return {
        'resumed': [server] if reason == '' else [],
        'failed': {server: reason} if reason else {},
        'unknown': [server] if reason is None else [],
    }
