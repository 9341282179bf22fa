# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Reads the vendordata of a member, from the metadata service or a file.

Part of the program that runs in guests (:mod:`.script`): Python 3.6 and its
standard library.
"""

import argparse
import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any

URL = 'http://169.254.169.254/openstack/latest/vendor_data2.json'

CONFIG_DRIVE = '/mnt/config/openstack/latest/vendor_data2.json'
"""Where cloud-init's documentation mounts a config drive."""

_TIMEOUT_S = 10
_PAUSE_S = 5


class HostsError(Exception):
    """The vendordata cannot be had or used; the text says why."""


def read_answer(args: argparse.Namespace) -> 'dict[str, Any]':
    """Return the vendordata of this server's cluster.

    :raises HostsError: it cannot be read, or the server is in no cluster.
    """
    source = args.file or args.url
    try:
        if args.file:
            with open(args.file) as file:
                text = file.read()
        else:
            # Without a proxy: none reaches the link-local address.
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({})
            )
            with opener.open(args.url, timeout=_TIMEOUT_S) as response:
                text = response.read().decode()
        answer = json.loads(text)[args.target]
    except urllib.error.HTTPError as error:
        raise HostsError(
            f'{args.url}: {error}; has your cloud vendordata?'
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HostsError(
            f'{source}: no JSON, so not from the metadata service ({error})'
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise HostsError(f'{source}: {str(error).strip()}') from None
    except (KeyError, TypeError):
        raise HostsError(
            f'the vendordata has no {args.target!r}: ask the operator of the '
            'cloud whether nova-vhpc-vendordata runs and how its target is '
            'called (--target)'
        ) from None
    if not answer:
        raise HostsError(
            'this server is in no virtual cluster, or the cloud could not be '
            'asked: it needs a flavor with vhpc: extra specs and a server '
            'group'
        )
    found: dict[str, Any] = answer
    return found


def complete_answer(args: argparse.Namespace) -> 'dict[str, Any]':
    """Return the vendordata as soon as the cluster is complete.

    :raises HostsError: it is not in time.
    """
    end = time.monotonic() + args.wait
    while True:
        try:
            answer = read_answer(args)
            if answer['cluster']['complete']:
                return answer
            reason = 'the cluster is not complete'
        except HostsError as error:
            reason = str(error)
        if time.monotonic() >= end:
            raise HostsError(f'{reason}, after {args.wait:g} s')
        time.sleep(min(_PAUSE_S, max(0.0, end - time.monotonic())))
