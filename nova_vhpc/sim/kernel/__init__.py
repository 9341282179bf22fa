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

"""The CPU scheduler of a simulated host, compiled by Numba.

Functions over one container of arrays (:class:`state.State`), driven by
events. The names of Linux's functions stand in the docstrings; the versions
meant are 6.12 to 6.18. ``doc/source/contributor/simulator.rst`` says what is
not modelled.
"""
