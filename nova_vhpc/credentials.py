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

"""Credentials of keystoneauth's option groups, own or another section's."""

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg


def given(conf: cfg.ConfigOpts, group: str) -> bool:
    """Whether a group says who is asking, itself or by ``auth_section``."""
    return bool(conf[group].auth_type or conf[group].auth_section)


def load(conf: cfg.ConfigOpts, group: str) -> Any:
    """A group's auth plugin; None where it names none.

    :raises Exception: of many kinds, when it cannot be used.
    """
    section = conf[group].auth_section
    if section:
        # Nobody else may have registered what this section may hold.
        loading.register_auth_conf_options(conf, section)
    return loading.load_auth_from_conf_options(conf, group)
