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
Tell the phases of virtual clusters to their other hosts, and listen to
control calls of ``nova-vhpc-ctl``, over the message bus of
``transport_url``.

Off, or without ``transport_url``, each host decides by itself. Turn it off
when no virtual cluster spans two hosts.
""",
    ),
    cfg.Opt(
        'lease',
        type=types.Finite(min=1.0, max=600.0),
        default=6.0,
        help="""
Seconds that what another host said holds without being renewed.

It bounds how long members can be in different phases after a loss, and
how long a host that died is still believed. Renewals, only sent while a
host is in the I/O phase, come three times per lease: lengthen it when
they load the broker. Keep it equal on all hosts. Suggested: 6.
""",
    ),
    cfg.BoolOpt(
        'share_min_slice',
        default=False,
        help="""
Share the least time slice of a virtual cluster's hosts as well.

One long slice anywhere delays all members, so ATC's minimum then holds
across hosts. Costs up to two messages per second, host and cluster. Turn
it on for tightly coupled programs on over-committed hosts; it needs
``version_cap`` 1.1 or none.
""",
    ),
    cfg.StrOpt(
        'version_cap',
        regex=r'^1\.[0-9]{1,3}$',
        help="""
Newest version of the ``vhpc.peers`` messages to send, such as ``1.0``.

Set it during a rolling upgrade to the version that the oldest agent
understands, on the upgraded hosts; take it away when all are upgraded.
1.0 has phases, 1.1 slices as well.
""",
    ),
    cfg.Opt(
        'call_timeout',
        type=types.Finite(min=0.1),
        default=10.0,
        help="""
Seconds that ``nova-vhpc-ctl`` waits for a host's answer. Raise it when
``restore`` on hosts with very many servers takes longer.
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
