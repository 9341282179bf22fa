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


"""The options of keystoneauth, for groups that name a service to call."""

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

TIMEOUT_S = 30


def register_opts(conf: cfg.ConfigOpts, group: str, service_type: str) -> None:
    """Register session, auth and adapter options.

    :param group: group to register them in.
    :param service_type: default type of the service in Keystone's catalogue.
    """
    loading.register_session_conf_options(conf, group)
    loading.register_auth_conf_options(conf, group)
    loading.register_adapter_conf_options(conf, group)
    # By keystoneauth's default, a request waits forever for an answer.
    conf.set_default('timeout', TIMEOUT_S, group=group)
    conf.set_default('service_type', service_type, group=group)


def opts() -> list[Any]:
    """Return these options, for the sample file."""
    return [
        *loading.get_session_conf_options(),
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options('password'),
        *loading.get_adapter_conf_options(),
    ]
