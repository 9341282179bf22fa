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

"""A checksum inside a JSON object, over all else that is in it.

A disk, or a hand, may change a byte such that the rest still is JSON: a
record that says another quota would be believed. Readers that know of no
checksum find one key more than they look for.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

KEY = 'crc32'


def add(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same object with its checksum."""
    return {**data, KEY: _of(data)}


def check(data: Mapping[str, Any]) -> None:
    """Nothing happens without one, as in what was written before there was.

    :raises ValueError: something was changed.
    """
    if KEY not in data:
        return
    if data[KEY] != _of(data):
        raise ValueError(f'its {KEY} does not match')


def _of(data: Mapping[str, Any]) -> str:
    summed = {name: value for name, value in data.items() if name != KEY}
    text = json.dumps(summed, sort_keys=True)
    return f'{zlib.crc32(text.encode()):08x}'
