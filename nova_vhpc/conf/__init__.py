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

"""Options of nova-vhpc: one module per group, as OpenStack keeps them.

Each module has ``register_opts(conf)`` and ``list_opts()``. Options are
registered on a ``ConfigOpts`` that the caller passes: nova-scheduler its
own global one, the agent a private one.
"""

from collections.abc import Iterable
from typing import Any

from oslo_config import cfg


def check(
    conf: cfg.ConfigOpts, groups: Iterable[tuple[Any, Iterable[Any]]]
) -> None:
    """Read every option once.

    oslo.config looks at a value when it is first read: a wrong one should
    stop a service at its start and not when it is needed at last.

    :param groups: as ``list_opts()`` of the modules here gives them.
    :raises cfg.Error: naming the first option whose value is wrong.
    """
    for group, options in groups:
        name = group if isinstance(group, str) else group.name
        for option in options:
            try:
                conf[name][option.dest]
            except cfg.NoSuchOptError as error:
                if error.opt_name == option.dest:
                    # keystoneauth registers those of the chosen plugin only.
                    continue
                raise cfg.Error(
                    f'[{name}]{option.name}: its value names an option by $, '
                    f'and there is {error}; a dollar sign is written $$'
                ) from None
            except (cfg.Error, ValueError) as error:
                raise cfg.Error(f'[{name}]{option.name}: {error}') from None
