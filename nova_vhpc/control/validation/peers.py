# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Check what the other hosts of virtual clusters have sent."""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.control import model
from nova_vhpc.control.validation import numbers, text


def check(
    peers: object, diagnostics: list[model.Diagnostic]
) -> Mapping[str, model.PeerView]:
    """Return the statements that make sense, by cluster.

    :param diagnostics: what is wrong is added here.
    """
    if not isinstance(peers, Mapping):
        diagnostics.append(model.Diagnostic('', f'peers {text.short(peers)}'))
        return {}
    valid: dict[str, model.PeerView] = {}
    for cluster, statement in peers.items():
        if not isinstance(statement, model.PeerView):
            diagnostics.append(
                model.Diagnostic(
                    '', f'what peers say of cluster {text.short(cluster)}'
                )
            )
            continue
        slice_us = statement.min_slice_us
        if slice_us is not None and not numbers.is_slice(slice_us):
            diagnostics.append(
                model.Diagnostic(
                    '',
                    f'time slice {text.short(slice_us)} us of cluster '
                    f'{text.short(cluster)} on its peers',
                )
            )
            statement = dataclasses.replace(statement, min_slice_us=None)
        valid[cluster] = statement
    return valid
