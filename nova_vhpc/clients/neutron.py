# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Requests to Neutron's API."""

from collections.abc import Mapping, Sequence
from typing import Any

from keystoneauth1 import adapter as ksa_adapter

_VERSION = '/v2.0'


def get(
    adapter: ksa_adapter.Adapter,
    path: str,
    params: Mapping[str, str | Sequence[str]] | None = None,
) -> Any:
    """Return what Neutron answers, as JSON.

    :param path: path below the version, such as ``/agents``.
    :param params: parameters of the request.
    :raises keystoneauth1.exceptions.ClientException: Neutron cannot be asked.
    """
    # Catalogues have the endpoint with or without the version. Without an
    # endpoint, keystoneauth says which is missing.
    endpoint = adapter.get_endpoint() or ''
    base = endpoint.rstrip('/').removesuffix(_VERSION) + _VERSION
    return adapter.get(base + path, params=params or {}).json()
