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

"""Shorten values of any type for messages."""


def short(value: object) -> str:
    """Return at most 40 characters of a value's text."""
    try:
        return str(value)[:40]
    except ValueError:
        # Python refuses to print whole numbers of thousands of digits.
        return 'a huge number of'
