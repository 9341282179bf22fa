# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Load plugins by name from the entry points of a namespace."""

from collections.abc import Callable
from typing import Any

from stevedore import named

from nova_vhpc.agent import errors


def load(
    namespace: str, name: str, value: str, lacking: str
) -> Callable[..., Any]:
    """Import the plugin of the given name, and no other.

    :param value: option and value, for the error message.
    :param lacking: text of the error message if there is no such plugin.
    :raises ConfigError: there is no such plugin, or its import failed.
    """
    failures: list[str] = []

    def note(manager: Any, entry_point: Any, error: Exception) -> None:
        failures.append(f'{type(error).__name__}: {error}')

    manager = named.NamedExtensionManager(
        namespace,
        [name],
        on_load_failure_callback=note,
        warn_on_missing_entrypoint=False,
    )
    for plugin in manager:
        chosen: Callable[..., Any] = plugin.plugin
        return chosen
    why = f'cannot be loaded ({failures[0]})' if failures else lacking
    raise errors.ConfigError(f'{value}: {why}; allowed: {allowed(namespace)}')


def allowed(namespace: str) -> str:
    """Return all plugin names of a namespace, without importing any."""
    manager = named.NamedExtensionManager(namespace, [])
    names = sorted(manager.entry_points_names())
    return ', '.join(names) or 'none is installed'
