# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Requests to Neutron's API."""

import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from keystoneauth1 import adapter as ksa_adapter

_VERSION = '/v2.0'


def pages(
    read: Callable[[str], Mapping[str, Any]], path: str, name: str
) -> Iterator[Any]:
    """Yield the entries of all pages of a list, of Neutron or Nova.

    :param read: returns the decoded answer to a GET request of a path.
    :param path: path and query of the list.
    :param name: name of the list in the answer, such as ``agents``.
    """
    asked: set[str] = set()
    page: str | None = path
    while page is not None and page not in asked:
        asked.add(page)
        body = read(page)
        yield from body[name]
        page = next(
            (
                f'{path.partition("?")[0]}?'
                + urllib.parse.urlsplit(link['href']).query
                for link in body.get(f'{name}_links') or ()
                if link.get('rel') == 'next'
            ),
            None,
        )


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
