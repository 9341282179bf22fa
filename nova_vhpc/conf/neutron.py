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

"""``[neutron]``: how the agent reaches Neutron.

Group and options are those of nova-compute, so that the agent can read them
from nova.conf unchanged.
"""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import keystone

GROUP = 'neutron'


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register keystoneauth's session, auth and adapter options."""
    keystone.register_opts(conf, GROUP, 'network')


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [(GROUP, keystone.opts())]
