# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``[vhpc_vendordata]``: the tenants' metadata service."""

from typing import Any

from oslo_config import cfg
from oslo_config import types as cfg_types

from nova_vhpc.conf import types

group = cfg.OptGroup(
    'vhpc_vendordata',
    title='Metadata service for members of virtual clusters',
)

_KEY = cfg_types.String(regex=r'\S')


class _Roles(cfg_types.List):  # type: ignore[misc]
    """Names of roles; without any all requests would be refused."""

    def __call__(self, value: Any) -> list[str]:
        """Return the names.

        :raises ValueError: there is none.
        """
        roles = [role for role in super().__call__(value) if role]
        if not roles:
            raise ValueError('it names no role, such as service')
        return roles


opts = [
    cfg.HostAddressOpt(
        'listen_host',
        default='127.0.0.1',
        help="""
Address that ``nova-vhpc-vendordata`` listens on.

Change it if nova-api's metadata service runs on other machines; in that case
use ``auth_strategy = keystone`` and a TLS proxy. Suggested value: this host's
address in the management network.
""",
    ),
    cfg.Opt(
        'listen_port',
        type=types.Port(),
        default=9775,
        help="""
Port that ``nova-vhpc-vendordata`` listens on.

Change it if another program uses the port. Nova's
``[api]vendordata_dynamic_targets`` must have the same port.
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
            ('noauth', 'check nothing; only on the loopback address'),
        ],
        help="""
How a request is authenticated.

Leave it at ``keystone`` in a cloud: a client of this service can read the
addresses of every project's virtual clusters. Use ``noauth`` in labs only.
""",
    ),
    cfg.Opt(
        'allowed_roles',
        type=_Roles(),
        default=['service', 'admin'],
        help="""
Roles of which Nova's service user must have at least one.

Change it if the user of ``[vendordata_dynamic_auth]`` has another role.
Suggested value: ``service``.
""",
    ),
    cfg.BoolOpt(
        'ask_agents',
        default=True,
        help="""
Ask the agents of members' hosts how the members run, for each answer.

Members are then told how long they were held up and in gang windows, how
over-committed their host is, and whether their packets take the uplink that
they claimed. It needs ``transport_url``, as agents have it, and goes over the
message bus; without ``transport_url`` agents are not asked. Turn it off if
this host must not reach the bus.
""",
    ),
    cfg.Opt(
        'agent_timeout',
        type=types.Finite(min=0.1, max=2.0),
        default=1.0,
        help="""
Seconds for which an answer waits for agents; members of those that are later
are unknown.

Nova waits 5 seconds for the whole answer by default
(``[api]vendordata_dynamic_read_timeout``), and the guest waits for Nova. Raise
it (try 2) if members are unknown although their agents run.
""",
    ),
    cfg.StrOpt(
        'id_secret',
        default='',
        secret=True,
        help="""
Secret of the IDs by which tenants tell hosts, switches and racks apart.

Members learn which of them share a host, a switch or a rack by IDs that
are keyed hashes of the names: another project gets other IDs for the same
hosts. Set it, to one value, if ``nova-vhpc-vendordata`` runs on several
hosts; a single one makes ``id_secret_file``. With the secret all IDs
change, and tenants must make files such as Slurm's ``topology.conf``
again. At least 16 characters, and no password that serves another purpose;
suggested value: the output of ``openssl rand -hex 32``.
""",
    ),
    cfg.StrOpt(
        'id_secret_file',
        default='/var/lib/nova-vhpc-vendordata/id_secret',
        help="""
File with the secret of the IDs, where ``id_secret`` is not set.

``nova-vhpc-vendordata`` makes it at its first start, for its own user
alone. If it can neither read nor make it, members get no IDs. Change it if
that user cannot write to the directory; the file must outlive restarts and
be the same for all processes behind one address.
""",
    ),
    cfg.Opt(
        'switch_key',
        type=_KEY,
        default='vhpc:switch',
        help="""
Aggregate metadata key whose value names the switch of the aggregate's hosts.

Members get an ID of the switch, for MPI's rank order and for job schedulers.
Change it, to the same value, if ``[vhpc_scheduler] switch_key`` of nova.conf
is changed.
""",
    ),
    cfg.Opt(
        'rack_key',
        type=_KEY,
        default='vhpc:rack',
        help="""
Aggregate metadata key whose value names the rack of the aggregate's hosts.

Change it, to the same value, if ``[vhpc_scheduler] rack_key`` of nova.conf
is changed.
""",
    ),
    cfg.Opt(
        'cache_seconds',
        type=types.Finite(min=0, max=3600),
        default=5.0,
        help="""
Seconds for which one answer of Nova is used for all members of a cluster.

All members boot and query the service at the same time. Each of them costs
Nova one API call; those that ask within this time, or while Nova is asked,
share the three or more for the cluster. Raise it (try 15) in large clouds
where booting a cluster takes long; a member may then see addresses that are
so old.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group and its options."""
    conf.register_opts(opts, group=group.name)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [(group, opts)]
