# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Credentials from option groups of keystoneauth, or their auth_section."""

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterable
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import loading
from keystoneauth1 import session as ksa_session
from keystoneauth1.identity import base
from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc.clients import failures

_CHATTY = ('keystoneauth.identity.generic.base', 'stevedore.named')
"""Loggers that warn at each attempt to log in, if Keystone is not reachable or
the ``auth_type`` does not exist. We log that once, with more detail."""


_LASTING = ('password', 'application_credential_secret', 'client_secret')
"""Options of auth plugins whose secret only an administrator changes."""


class UnusableError(ValueError):
    """The options of a group make no client; the text says which and why."""


def given(conf: cfg.ConfigOpts, group: str) -> bool:
    """Return whether a group has credentials, itself or by auth_section."""
    return bool(conf[group].auth_type or conf[group].auth_section)


def place(conf: cfg.ConfigOpts, group: str) -> failures.Place:
    """Return where the options of a group are set, for messages."""
    found = failures.Place.of_group(group)
    section = conf[group].auth_section if group in conf else None
    if not section or section == group:
        return found
    return dataclasses.replace(found, auth_name=f'[{section}]')


def check(conf: cfg.ConfigOpts, groups: Iterable[str]) -> None:
    """Read the options of the groups' auth plugins once.

    keystoneauth reads them only at the first login. Its error for a wrong
    value names only what the value refers to by $, which may be a part of
    the password.

    :param groups: names of option groups; those without credentials are
        skipped.
    :raises cfg.Error: a value is wrong; the message names the first such
        option.
    """
    _hush()
    groups = [group for group in groups if given(conf, group)]
    # Register all before reading any: a value may refer to another option.
    conf_package.check(conf, [_register(conf, group) for group in groups])
    for group in groups:
        try:
            loading.load_adapter_from_conf_options(conf, group, session=None)
        except TypeError as error:
            raise cfg.Error(f'[{group}]: {failures.plain(error)}') from None


def load(conf: cfg.ConfigOpts, group: str) -> Any:
    """Return a group's auth plugin, None if it has no credentials.

    :raises Exception: the plugin cannot be used; keystoneauth raises many
        kinds.
    """
    _hush()
    _register_section(conf, group)
    plugin = loading.load_auth_from_conf_options(conf, group)
    keep_from_itself(plugin)
    return plugin


def secret(conf: cfg.ConfigOpts, group: str) -> str | None:
    """Return the lasting secret that a group logs in with.

    :returns: None if the group has no credentials, or those without a secret,
        or with one that changes by itself, such as a token.
    """
    if not given(conf, group):
        return None
    section, options = _register(conf, group)
    for option in options:
        if option.dest in _LASTING and conf[section][option.dest]:
            return str(conf[section][option.dest])
    return None


def adapter(
    conf: cfg.ConfigOpts, group: str, connections: int = 10, **options: Any
) -> Any:
    """Return keystoneauth's adapter of a group's service.

    It logs in at the first request.

    :param connections: connections to keep, one per thread that uses it.
    :param options: further arguments of the adapter.
    :raises UnusableError: an option is wrong or missing.
    """
    try:
        session = loading.load_session_from_conf_options(
            conf, group, auth=load(conf, group)
        )
        widen(session, connections)
        return loading.load_adapter_from_conf_options(
            conf, group, session=session, **options
        )
    except Exception as error:
        # keystoneauth raises many kinds, also TypeError.
        text = failures.reason(error, place(conf, group))
        raise UnusableError(f'[{group}] is unusable: {text}') from error


def widen(session: ksa_session.Session, connections: int) -> None:
    """Let a session keep so many connections to a server.

    With more threads than that, urllib3 closes the others and warns of each.
    """
    for scheme in list(session.session.adapters):
        session.session.mount(
            scheme, ksa_session.TCPKeepAliveAdapter(pool_maxsize=connections)
        )


def keep_from_itself(plugin: Any) -> None:
    """Prevent a deadlock of a plugin that asks itself for a token.

    If Keystone answers 401 to the request for its versions, keystoneauth
    repeats the request with a token. To get one it waits for a lock that its
    own thread holds, forever. With this change that inner request is
    refused, and keystoneauth uses the version in ``auth_url``.
    """
    _hush()
    if not isinstance(plugin, base.BaseIdentityPlugin):
        return
    get_access = plugin.get_access
    thread = threading.local()

    def once(session: Any, **kwargs: Any) -> Any:
        if getattr(thread, 'asks', False):
            raise ksa_exceptions.Unauthorized(
                'Keystone does not list its versions without a token'
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
        # Keep a level that the operator has set by default_log_levels.
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.ERROR)


def _register_section(conf: cfg.ConfigOpts, group: str) -> str:
    """Return the section with a group's credentials; register its options."""
    section: str | None = conf[group].auth_section
    if section:
        # No other code registers options of this section.
        loading.register_auth_conf_options(conf, section)
    return section or group


def _register(conf: cfg.ConfigOpts, group: str) -> tuple[str, list[cfg.Opt]]:
    """Register the options of a group's plugin, if that plugin exists."""
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
