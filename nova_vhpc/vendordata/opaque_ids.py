# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""IDs of hosts, switches and racks that tell a tenant nothing else.

A tenant needs to know which of its members share a host, a switch or a rack,
and nothing else: neither names, nor which of another project's servers are
near. An ID is a keyed hash of project, kind and name: without the secret,
names cannot be guessed and tried.
"""

import dataclasses
import hashlib
import hmac
import re

from oslo_config import cfg

from nova_vhpc.clients import credentials
from nova_vhpc.conf import nova_api as nova_conf

MIN_SECRET_LENGTH = 16
"""Fewest characters of ``[vhpc_vendordata] id_secret``."""

_DIGITS = 16
"""Hexadecimal digits of an ID: 64 bits, so that two never agree by chance."""

_ID = re.compile(f'(host|switch|rack)-[0-9a-f]{{{_DIGITS}}}')


@dataclasses.dataclass(frozen=True, slots=True)
class OpaqueIds:
    """The IDs that one project gets.

    They are valid names of Slurm's switches and blocks, and valid values of
    Kubernetes' labels.

    :ivar project_id: ID of the project.
    """

    project_id: str
    _secret: bytes = dataclasses.field(repr=False)

    def host(self, name: str) -> str:
        """Return the ID of a compute host."""
        return self._of('host', name)

    def switch(self, name: str | None) -> str | None:
        """Return the ID of a host's switch; None if it is in none."""
        return None if name is None else self._of('switch', name)

    def rack(self, name: str | None) -> str | None:
        """Return the ID of a host's rack; None if it is in none."""
        return None if name is None else self._of('rack', name)

    def _of(self, kind: str, name: str) -> str:
        # Neither a project ID nor a name in Nova's API has a null character,
        # so no two triples make the same text.
        text = '\0'.join((self.project_id, kind, name))
        digest = hmac.new(
            self._secret, text.encode(errors='surrogatepass'), hashlib.sha256
        )
        return f'{kind}-{digest.hexdigest()[:_DIGITS]}'


def is_id(value: object) -> bool:
    """Return whether a value is an ID as this module makes them."""
    return isinstance(value, str) and bool(_ID.fullmatch(value))


def derived(password: str) -> bytes:
    """Return a secret that is derived from the password of a service user.

    Servers of the same user agree on it, and it does not tell the password.
    """
    return hmac.new(
        password.encode(), b'nova-vhpc opaque ids', hashlib.sha256
    ).digest()


def configured(conf: cfg.ConfigOpts) -> bytes | None:
    """Return the secret that all servers with a configuration agree on.

    :param conf: with ``[vhpc_vendordata]`` and ``[vhpc_nova]``.
    :returns: None if there is neither ``id_secret`` nor a password that one
        could be derived from.
    :raises ValueError: ``[vhpc_vendordata] id_secret`` is too short.
    """
    secret = str(conf.vhpc_vendordata.id_secret)
    if secret:
        if len(secret) < MIN_SECRET_LENGTH:
            raise ValueError(
                f'[vhpc_vendordata]id_secret has {len(secret)} characters, '
                f'fewer than {MIN_SECRET_LENGTH}: the names behind '
                'the IDs could be guessed; set it to the output of: openssl '
                'rand -hex 32'
            )
        return secret.encode()
    password = credentials.secret(conf, nova_conf.GROUP)
    return None if password is None else derived(password)
