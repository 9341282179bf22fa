# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""List all option groups, for the sample file and the reference."""

import importlib
import pkgutil
from typing import Any

from nova_vhpc import conf

HELPERS = ('keystone', 'log_format', 'opts', 'types', 'unknown_options')
"""Modules of this package that have no group of options."""


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return every group with its options (``oslo.config.opts``)."""
    groups: list[tuple[Any, list[Any]]] = []
    for module_info in sorted(
        pkgutil.iter_modules(conf.__path__), key=lambda info: info.name
    ):
        if module_info.name in HELPERS:
            continue
        module = importlib.import_module(f'{conf.__name__}.{module_info.name}')
        groups.extend(module.list_opts())
    return groups
