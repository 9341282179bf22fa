# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Where the secret of :mod:`.opaque_ids` comes from."""

from oslo_config import cfg

from nova_vhpc.clients import credentials
from nova_vhpc.conf import nova_api as nova_conf
from nova_vhpc.vendordata import opaque_ids


def configured(conf: cfg.ConfigOpts) -> bytes | None:
    """Return the secret that all servers with a configuration agree on.

    :param conf: with ``[vhpc_vendordata]`` and ``[vhpc_nova]``.
    :returns: None if there is neither ``id_secret`` nor a password that one
        could be derived from.
    :raises ValueError: ``[vhpc_vendordata] id_secret`` is too short.
    """
    secret = str(conf.vhpc_vendordata.id_secret)
    if secret:
        if len(secret) < opaque_ids.MIN_SECRET_LENGTH:
            raise ValueError(
                f'[vhpc_vendordata]id_secret has {len(secret)} characters, '
                f'fewer than {opaque_ids.MIN_SECRET_LENGTH}: the names behind '
                'the IDs could be guessed; set it to the output of: openssl '
                'rand -hex 32'
            )
        return secret.encode()
    password = credentials.secret(conf, nova_conf.GROUP)
    return None if password is None else opaque_ids.derived(password)
