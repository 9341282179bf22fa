# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``[vhpc_peers]``: how the hosts of a virtual cluster exchange phases."""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import types

GROUP = 'vhpc_peers'

opts = [
    cfg.BoolOpt(
        'enabled',
        default=True,
        help="""
Send the phases of virtual clusters to their other hosts, and accept calls of
``nova-vhpc-ctl``, over the message bus of ``transport_url``.

If it is off, or without ``transport_url``, each host decides by itself. Turn
it off if no virtual cluster spans two hosts.
""",
    ),
    cfg.Opt(
        'lease',
        type=types.Finite(min=1.0, max=600.0),
        default=6.0,
        help="""
Seconds for which a statement of another host holds if it is not renewed.

It limits how long members can be in different phases after a message was
lost, and how long the statement of a dead host counts. Statements are renewed
three times per lease: phases in the I/O phase only, slots always. Raise it
(try 15) if they load the broker. Set it to the same value on all hosts: at
most four times a host's own lease is accepted from others.
""",
    ),
    cfg.BoolOpt(
        'share_min_slice',
        default=False,
        help="""
Exchange the least time slice of a virtual cluster between its hosts as well.

A long slice on one host delays all members, so ATC's minimum then holds for
all hosts. It costs up to two messages per second, host and cluster. Turn it
on for tightly coupled programs on over-committed hosts.
""",
    ),
    cfg.Opt(
        'call_timeout',
        type=types.Finite(0.1, 86_400.0),
        default=10.0,
        help="""
Seconds for which ``nova-vhpc-ctl`` waits for the answer of a host. Raise it
(try 60) if ``restore`` takes longer on hosts with very many servers.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group on ``conf``."""
    # By name: an OptGroup object would share overrides between ConfigOpts.
    conf.register_opts(opts, group=GROUP)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [(GROUP, opts)]
