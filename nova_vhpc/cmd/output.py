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

"""How the console scripts print."""

import io
import json
import sys
from typing import Any

from rich.console import Console


def take_any_name() -> None:
    """Have standard output take characters that its encoding lacks.

    Names in a cloud may have any, and a locale need not: such a character is
    printed as Python writes it, and ends no program.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='backslashreplace')


def print_json(document: Any, *, sort_keys: bool = False) -> None:
    """Print a document for scripts.

    Without colours, also where ``FORCE_COLOR`` wants them. Unlike
    ``print()``, it lets head and the like end the program.
    """
    text = json.dumps(document, indent=2, sort_keys=sort_keys)
    Console(highlight=False).out(text)
