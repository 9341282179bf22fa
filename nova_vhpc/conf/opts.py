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
