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

"""``[vhpc_vendordata]``: the tenants' metadata service."""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import types

group = cfg.OptGroup(
    'vhpc_vendordata',
    title='What members of a virtual cluster are told by the metadata service',
)

opts = [
    cfg.HostAddressOpt(
        'listen_host',
        default='127.0.0.1',
        help="""
Address that ``nova-vhpc-vendordata`` listens on.

Change it when nova-api's metadata service runs on other machines; use
``auth_strategy = keystone`` then and put TLS in front. Suggested value: the
management network's address of this host.
""",
    ),
    cfg.Opt(
        'listen_port',
        type=types.Port(),
        default=9775,
        help="""
Port that ``nova-vhpc-vendordata`` listens on.

Change it when the port is taken. Nova's
``[api]vendordata_dynamic_targets`` names the same port.
""",
    ),
    cfg.StrOpt(
        'auth_strategy',
        default='keystone',
        choices=[
            (
                'keystone',
                'check the service token that Nova sends; needs '
                '``[keystone_authtoken]``',
            ),
            ('noauth', 'ask for nothing; on the loopback address only'),
        ],
        help="""
How a request is authenticated.

Leave it at ``keystone`` in a cloud: whoever may ask here learns addresses of
every project's virtual clusters. ``noauth`` is for labs.
""",
    ),
    cfg.ListOpt(
        'allowed_roles',
        default=['service', 'admin'],
        help="""
Roles of which Nova's service user needs one.

Change it when the user of ``[vendordata_dynamic_auth]`` has another role.
Suggested value: ``service``.
""",
    ),
    cfg.Opt(
        'cache_seconds',
        type=types.Finite(min=0),
        default=5.0,
        help="""
How long one answer of Nova serves the other members of a cluster.

All members boot and ask at once; without this every one of them costs Nova
four API calls. Raise it on large clouds when addresses settle slowly.
Suggested value: 5.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group and its options."""
    conf.register_opts(opts, group=group.name)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [(group, opts)]
