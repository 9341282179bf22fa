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

"""Keep eventlet out of the agent, which runs native threads only.

Import this before a library that loads eventlet wherever it is installed, and
Nova installs it. oslo.service, which oslo.messaging uses, would choose
eventlet and fail, so it is told to choose threads.
"""

import importlib.abc
import sys
from typing import Any


class _NoEventlet(importlib.abc.MetaPathFinder):
    """Refuses to import eventlet."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname.partition('.')[0] == 'eventlet':
            raise ImportError('nova-vhpc runs native threads only')


sys.meta_path.insert(0, _NoEventlet())

from oslo_service import backend  # noqa: E402

backend.init_backend(backend.BackendType.THREADING)
