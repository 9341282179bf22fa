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

from nova_vhpc.agent import errors, plugins

LOG = logging.getLogger(__name__)

ACTUATOR_NAMESPACE = 'nova_vhpc.actuators'


def load_actuators(conf: Any) -> list[Any]:
    """Load the actuators that ``[vhpc_agent]actuators`` names.

    :raises ConfigError: for a name that no one provides, or none at all.
    """
    found = []
    for name in conf.vhpc_agent.actuators:
        value = f"[vhpc_agent]actuators = '{name}'"
        actuator_class = plugins.load(
            ACTUATOR_NAMESPACE, name, value, 'no such actuator'
        )
        try:
            actuator = actuator_class(conf)
            reason = actuator.check()
            actuator.limits()
        except errors.AgentError:
            raise
        except Exception as error:
            raise errors.ConfigError(f'{value}: failed: {error!r}') from error
        if reason is None:
            found.append(actuator)
        else:
            LOG.warning('Actuator %s is not used: %s', name, reason)
    if not found:
        raise errors.ConfigError(
            "[vhpc_agent]actuators = '': nothing could be written; "
            f'allowed: {plugins.allowed(ACTUATOR_NAMESPACE)}'
        )
    return found
