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

"""Parts of pages in reStructuredText."""

from collections.abc import Iterable, Sequence


def heading(title: str, line: str = '=') -> list[str]:
    """Return the lines of a heading.

    :param line: the character below it.
    """
    return [title, line * len(title), '']


def list_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; the first row is its header."""
    lines = ['.. list-table::', '   :header-rows: 1', '']
    for row in rows:
        for number, cell in enumerate(row):
            lead = '   * - ' if number == 0 else '     - '
            lines.append((lead + cell).rstrip())
    return [*lines, '']
