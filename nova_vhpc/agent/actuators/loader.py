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

"""The actuators that the configuration names."""

import logging
from typing import Any

import stevedore

from nova_vhpc.agent import errors

LOG = logging.getLogger(__name__)

ACTUATOR_NAMESPACE = 'nova_vhpc.actuators'


def load_actuators(conf: Any) -> list[Any]:
    """Load the actuators that ``[vhpc_agent]actuators`` names.

    :raises ConfigError: for a name that no one provides, or none at all.
    """
    manager = stevedore.ExtensionManager(ACTUATOR_NAMESPACE)
    allowed = ', '.join(sorted(manager.names()))
    found = []
    for name in conf.vhpc_agent.actuators:
        if name not in manager:
            raise errors.ConfigError(
                f"[vhpc_agent]actuators = '{name}': no such actuator; "
                f'allowed: {allowed}'
            )
        actuator = manager[name].plugin(conf)
        reason = actuator.check()
        if reason is None:
            found.append(actuator)
        else:
            LOG.warning('Actuator %s is not used: %s', name, reason)
    if not found:
        raise errors.ConfigError(
            "[vhpc_agent]actuators = '': nothing could be written; "
            f'allowed: {allowed}'
        )
    return found
