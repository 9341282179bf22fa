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


"""What is heard and said of each cluster, in values that JSON takes."""

from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent.clusters import protocol


def clusters(
    rules: protocol.Protocol, states: Mapping[str, protocol.State], now_us: int
) -> dict[str, dict[str, Any]]:
    """All clusters with members here; units are in the names."""
    return {
        cluster: {
            'phase': protocol.group_phase(rules, state, now_us).value,
            'own': state.own.word.phase.value if state.own else None,
            'hosts': {
                host: {
                    'phase': heard.word.phase.value,
                    'min_slice_us': heard.word.min_slice_us,
                    'lease_s': round((heard.until_us - now_us) / 1e6, 1),
                }
                for host, heard in sorted(state.heard.items())
                if heard.until_us > now_us
            },
        }
        for cluster, state in sorted(states.items())
    }
