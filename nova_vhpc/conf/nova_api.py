# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``[vhpc_nova]``: how the agent learns which cluster a server is in."""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import keystone, types

GROUP = 'vhpc_nova'

opts = [
    cfg.Opt(
        'poll_interval',
        type=types.Integer(1, types.MOST_SECONDS),
        default=60,
        help="""
Seconds between two queries to Nova about this host's servers.

A new server is looked up at once, so this only limits how late the agent sees
a change of group or metadata. A query costs one call, and one more for each
server group on this host. Raise it (try 300) in clouds of many thousand hosts.
""",
    ),
    cfg.Opt(
        'min_interval',
        type=types.Integer(1, types.MOST_SECONDS),
        default=5,
        help="""
Seconds between two queries to Nova, at least, even if many servers start.

Raise it (try 15) if many servers boot at the same time and nova-api is the
bottleneck.
""",
    ),
    cfg.Opt(
        'groups_file',
        type=types.AbsolutePath(needed=False),
        help="""
File that lists the servers of each virtual cluster. Set it in clouds whose
compute hosts may not call the Nova API.

It is YAML or JSON: a mapping from the cluster's name to a list of server
uuids, the same on all hosts of the cluster. It is read again if it changes,
and overrides Nova. Suggested value: ``/etc/nova-vhpc/groups.yaml``.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group with keystoneauth's options on ``conf``."""
    conf.register_opts(opts, group=GROUP)
    keystone.register_opts(conf, GROUP, 'compute')


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [(GROUP, [*opts, *keystone.opts()])]
