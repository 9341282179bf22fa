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

"""Numbers that can have been measured, or can be asked for."""

MAX = 1e15
"""Greater than anything that is measured or set, in any unit."""


def is_measurable(value: object) -> bool:
    """Return whether a value is a number from 0 to :data:`MAX`."""
    # A comparison with NaN is false.
    return isinstance(value, int | float) and 0 <= value <= MAX


def is_slice(value: object) -> bool:
    """Return whether a value is a time slice, in microseconds.

    libvirt takes whole numbers only.
    """
    return type(value) is int and 0 < value <= MAX
