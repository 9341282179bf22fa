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

import contextlib
import logging
import threading
from collections.abc import Iterable
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import loading
from keystoneauth1.identity import base
from oslo_config import cfg

from nova_vhpc import conf as conf_package

_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (
        ksa_exceptions.Unauthorized,
        'are username, password, project and domains of [{}] right?',
    ),
    (
        ksa_exceptions.CatalogException,
        'has the cloud of auth_url this service, by region_name and '
        'valid_interfaces of [{}]?',
    ),
    (
        ksa_exceptions.MissingAuthPlugin,
        'does auth_section of [{}] name a group that has an auth_type?',
    ),
)
"""What to look at where keystoneauth itself does not say."""

_CHATTY = ('keystoneauth.identity.generic.base', 'stevedore.named')
"""They warn at each try to log in of what we tell once, and better: that
Keystone is away, and of an ``auth_type`` that there is not."""


def reason(error: Exception, group: str) -> str:
    """Why a service could not be asked, in one line for people.

    :param group: whose credentials and options were used.
    """
    text = ' '.join(str(error).split()) or type(error).__name__
    for kind, hint in _HINTS:
        if isinstance(error, kind):
            return f'{text.rstrip(".")}; {hint.format(group)}'
    return text


def given(conf: cfg.ConfigOpts, group: str) -> bool:
    """Whether a group says who is asking, itself or by ``auth_section``."""
    return bool(conf[group].auth_type or conf[group].auth_section)


def check(conf: cfg.ConfigOpts, groups: Iterable[str]) -> None:
    """Read the options of the groups' plugins once.

    keystoneauth reads them when somebody logs in, and says no more of a wrong
    one than what it names by $, with a part of the password.

    :raises cfg.Error: naming the first option whose value is wrong.
    """
    _hush()
    # All are known before any is read: one may name another's.
    conf_package.check(
        conf,
        [_register(conf, group) for group in groups if given(conf, group)],
    )


def load(conf: cfg.ConfigOpts, group: str) -> Any:
    """A group's auth plugin; None where it names none.

    :raises Exception: of many kinds, when it cannot be used.
    """
    _hush()
    _register_section(conf, group)
    plugin = loading.load_auth_from_conf_options(conf, group)
    keep_from_itself(plugin)
    return plugin


def keep_from_itself(plugin: Any) -> None:
    """Have a plugin that needs a token to get a token be refused it.

    Where Keystone's list of versions answers 401, keystoneauth asks for it
    with a token, and so waits for ever for a lock that its own thread holds.
    Refused, it goes by the version in ``auth_url``.
    """
    _hush()
    if not isinstance(plugin, base.BaseIdentityPlugin):
        return
    get_access = plugin.get_access
    thread = threading.local()

    def once(session: Any, **kwargs: Any) -> Any:
        if getattr(thread, 'asks', False):
            raise ksa_exceptions.Unauthorized(
                'Keystone tells its versions to nobody without a token'
            )
        thread.asks = True
        try:
            return get_access(session, **kwargs)
        finally:
            thread.asks = False

    plugin.get_access = once


def _hush() -> None:
    for name in _CHATTY:
        logger = logging.getLogger(name)
        # Not what an operator has set by default_log_levels.
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.ERROR)


def _register_section(conf: cfg.ConfigOpts, group: str) -> str:
    """Where a group's credentials stand."""
    section: str | None = conf[group].auth_section
    if section:
        # Nobody else may have registered what this section may hold.
        loading.register_auth_conf_options(conf, section)
    return section or group


def _register(conf: cfg.ConfigOpts, group: str) -> tuple[str, list[cfg.Opt]]:
    """Register what its plugin takes; a plugin that is not there nothing."""
    section = _register_section(conf, group)
    options: list[cfg.Opt] = loading.get_auth_common_conf_options()
    conf_package.check(conf, [(section, options)])
    if conf[section].auth_type:
        with contextlib.suppress(ksa_exceptions.NoMatchingPlugin):
            plugin = loading.get_auth_plugin_conf_options(
                conf[section].auth_type
            )
            conf.register_opts(plugin, group=section)
            options += plugin
    return section, options
