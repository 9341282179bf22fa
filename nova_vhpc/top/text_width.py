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

"""Text in a given number of terminal cells; some characters take two."""

from rich import cells


def length(text: str) -> int:
    """Return the number of terminal cells that a text takes."""
    return cells.cell_len(text)


def shorten(text: str, width: int) -> str:
    """Return a text in at most ``width`` cells, with an ellipsis if cut."""
    if length(text) <= width:
        return text
    return cells.set_cell_size(text, max(0, width - 1)).rstrip() + '…'


def pad(text: str, width: int, right: bool) -> str:
    """Return a text in ``width`` cells, aligned to the left or right."""
    blanks = ' ' * max(0, width - length(text))
    return blanks + text if right else text + blanks
