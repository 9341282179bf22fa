# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""IDs of hosts, switches and racks that tell a tenant nothing else.

A tenant needs to know which of its members share a host, a switch or a rack,
and nothing else: neither names, nor which of another project's servers are
near. An ID is a keyed hash of project, kind and name. The key is a secret of
its own: tenants can find out the names by Nova's ``hostId``, so a key that is
made of a password would let them try passwords.
"""

import dataclasses
import hashlib
import hmac
import os
import pathlib
import re
import secrets
import stat
import tempfile

from oslo_config import cfg
from oslo_log import log as logging

from nova_vhpc.clients import credentials
from nova_vhpc.conf import nova_api as nova_conf

LOG = logging.getLogger(__name__)

MIN_SECRET_LENGTH = 16
"""Fewest characters of a secret."""

_DIGITS = 16
"""Hexadecimal digits of an ID: 64 bits, so that two never agree by chance."""

_ID = re.compile(f'(host|switch|rack)-[0-9a-f]{{{_DIGITS}}}')


class NoSecretError(Exception):
    """There is no secret to use; the text says why, and what to do."""


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


def secret(conf: cfg.ConfigOpts, create: bool = False) -> bytes:
    """Return the secret of the IDs, of ``id_secret`` or ``id_secret_file``.

    :param conf: with ``[vhpc_vendordata]`` and ``[vhpc_nova]``.
    :param create: whether to make the file if there is none.
    :raises NoSecretError: the option is unset and the file cannot be used.
    :raises ValueError: ``id_secret`` is too short, or the password of
        ``[vhpc_nova]``.
    """
    options = conf.vhpc_vendordata
    option = str(options.id_secret)
    if option:
        _check_option(conf, option)
        return option.encode()
    path = pathlib.Path(options.id_secret_file)
    try:
        if create and not path.exists():
            _create(path)
        return _read(path, create)
    except OSError as error:
        raise NoSecretError(
            f'[vhpc_vendordata]id_secret_file = {path}: '
            f'{error.strerror or error}; let the user of '
            'nova-vhpc-vendordata write to its directory, or set '
            '[vhpc_vendordata]id_secret to the output of: openssl rand -hex 32'
        ) from None


def _check_option(conf: cfg.ConfigOpts, option: str) -> None:
    if len(option) < MIN_SECRET_LENGTH:
        raise ValueError(
            f'[vhpc_vendordata]id_secret has {len(option)} characters, '
            f'fewer than {MIN_SECRET_LENGTH}: the names behind the IDs could '
            'be guessed; set it to the output of: openssl rand -hex 32'
        )
    password = credentials.secret(conf, nova_conf.GROUP)
    if password is not None and hmac.compare_digest(
        option.encode(), password.encode()
    ):
        raise ValueError(
            '[vhpc_vendordata]id_secret is the secret that '
            f'[{nova_conf.GROUP}] logs in with, which tenants could try to '
            'guess by their IDs; set it to the output of: openssl rand -hex 32'
        )


def _create(path: pathlib.Path) -> None:
    """Write a new secret, unless another process is first."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    # A temporary file has mode 0600.
    with tempfile.NamedTemporaryFile('w', dir=path.parent) as file:
        file.write(secrets.token_hex(32) + '\n')
        file.flush()
        os.fsync(file.fileno())
        try:
            # Unlike a rename, it never replaces a file.
            os.link(file.name, path)
        except FileExistsError:
            return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    LOG.warning(
        'Made the secret of the IDs that tenants get of hosts, switches and '
        'racks: %s. If nova-vhpc-vendordata runs on several hosts, all need '
        'the same file or the same [vhpc_vendordata]id_secret: otherwise '
        'members get other IDs from each',
        path,
    )


def _read(path: pathlib.Path, own: bool) -> bytes:
    """Return the secret of a file.

    :param own: whether the file must be root's or this process's.
    :raises NoSecretError: others may know the secret, or it is too short.
    :raises OSError: it cannot be read.
    """
    with path.open('rb') as file:
        status = os.fstat(file.fileno())
        text = file.read(4096).strip()
    reason = None
    if stat.S_IMODE(status.st_mode) & stat.S_IRWXO:
        reason = f'all users may use it (mode {status.st_mode & 0o7777:04o})'
    elif own and status.st_uid not in (0, os.geteuid()):
        reason = f'it is of another user (ID {status.st_uid})'
    elif len(text) < MIN_SECRET_LENGTH:
        reason = (
            f'it has {len(text)} characters, fewer than {MIN_SECRET_LENGTH}'
        )
    if reason is not None:
        raise NoSecretError(
            f'[vhpc_vendordata]id_secret_file = {path}: {reason}, so it is no '
            'secret; remove it and restart nova-vhpc-vendordata, which makes '
            'a new one'
        )
    return text
