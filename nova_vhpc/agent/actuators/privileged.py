# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write scheduling attributes in a privileged process (oslo.privsep).

The daemon is started at the first call and keeps only CAP_SYS_NICE; it ends
with the agent, even if the agent is killed. Import this module only inside
functions that use it: most agents never need oslo.privsep.
"""

import contextlib
import os
import pathlib
import shlex
import sys
from collections.abc import Iterable

from oslo_config import cfg

from nova_vhpc.agent import no_eventlet
from nova_vhpc.linux import sched_attr

try:
    from oslo_privsep import capabilities, priv_context
except ImportError:
    # oslo.privsep of OpenStack 2026.1 cannot do without eventlet.
    with no_eventlet.allowed():
        from oslo_privsep import capabilities, priv_context

SECTION = 'vhpc_privileged'
HELPER = 'privsep-helper'

TIMEOUT_S = 10.0
"""Timeout of a call, in seconds; the first one also starts the daemon."""


CONTEXT = priv_context.PrivContext(
    'nova_vhpc',
    cfg_section=SECTION,
    pypath=f'{__name__}.CONTEXT',
    capabilities=[capabilities.CAP_SYS_NICE],
    timeout=TIMEOUT_S,
)


def _helper_command() -> str | None:
    """Return the helper's command; None for root.

    Root needs no sudo, which may not even work (NoNewPrivileges).
    """
    if os.geteuid() != 0:
        return None
    beside = pathlib.Path(sys.executable).with_name(HELPER)
    # oslo.privsep splits the command like a shell; paths may have spaces.
    return shlex.quote(str(beside)) if beside.exists() else HELPER


cfg.CONF.set_default('helper_command', _helper_command(), group=SECTION)


def set_slice_us(tids: Iterable[int], slice_us: int) -> None:
    """Set the slice of threads, in one call to the daemon.

    :param tids: thread IDs.
    :param slice_us: slice in microseconds; 0 for the kernel's default.
    :raises OSError: the kernel refused it, or the daemon does not run.
    """
    try:
        _set_slice_us(list(tids), slice_us)
    except OSError:
        raise
    except Exception as error:
        # The errors of oslo.privsep have no base class of their own.
        raise OSError(
            f'the privsep daemon does not work: {error!r}; {HELPER} must be '
            'installed, and sudo must allow it to an agent that is not root'
        ) from error


@CONTEXT.entrypoint
def _set_slice_us(tids: list[int], slice_us: int) -> None:
    for tid in tids:
        # A thread that has ended needs no slice.
        with contextlib.suppress(ProcessLookupError):
            sched_attr.set_slice_us(tid, slice_us)
