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


"""``[vhpc_nova]``: how the agent learns which cluster a server is in."""

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

from nova_vhpc.conf import types

GROUP = 'vhpc_nova'
TIMEOUT_S = 30

opts = [
    cfg.Opt(
        'poll_interval',
        type=types.Integer(min=1),
        default=60,
        help="""
Seconds between two questions to Nova about this host's servers.

A server that the agent has never heard of is asked for earlier, so this
only bounds how late a change of group or metadata is seen. Costs one call
and one more per server group on this host; raise it in clouds of many
thousand hosts.
""",
    ),
    cfg.Opt(
        'min_interval',
        type=types.Integer(min=1),
        default=5,
        help="""
Least seconds between two questions to Nova, however many servers start.

Raise it when boots come in storms and nova-api is the bottleneck.
""",
    ),
    cfg.StrOpt(
        'groups_file',
        help="""
File that says which servers form a virtual cluster, for clouds whose
compute hosts may not call the Nova API.

YAML or JSON: a mapping from the cluster's name to a list of server uuids,
the same on all hosts of the cluster. It is read again when it changes,
and stands above what Nova says. Suggested value where needed:
``/etc/nova-vhpc/groups.yaml``.
""",
    ),
    cfg.BoolOpt(
        'notifications',
        default=False,
        help="""
Listen to Nova's versioned notifications, and ask Nova at once when one
tells of a server or server group.

Needs ``notification_format`` ``versioned`` or ``both`` in nova.conf. The
agent listens in a pool of its own, so no other consumer loses a message,
but each agent receives all notifications of the cloud: leave it off in
large clouds.
""",
    ),
    cfg.StrOpt(
        'notification_exchange',
        default='nova',
        help="""
Exchange of Nova's notifications: nova's ``control_exchange``. Change it
when nova.conf changes that.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group with keystoneauth's options on ``conf``."""
    conf.register_opts(opts, group=GROUP)
    loading.register_session_conf_options(conf, GROUP)
    loading.register_auth_conf_options(conf, GROUP)
    loading.register_adapter_conf_options(conf, GROUP)
    # By keystoneauth's default, a request waits forever for an answer.
    conf.set_default('timeout', TIMEOUT_S, group=GROUP)
    conf.set_default('service_type', 'compute', group=GROUP)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [
        (
            GROUP,
            [
                *opts,
                *loading.get_session_conf_options(),
                *loading.get_auth_common_conf_options(),
                *loading.get_auth_plugin_conf_options('password'),
                *loading.get_adapter_conf_options(),
            ],
        )
    ]
