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
