# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


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
