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

"""How the functions of the simulated kernel are compiled."""

from typing import Any

from numba import njit

#: For functions that only compiled ones call. Python cannot call them: the
#: wrappers for that would take more time to compile than the functions. They
#: allocate nothing, and counting references to the arrays (``_nrt``) would
#: make each call eighteen times as slow.
inner: Any = njit(  # type: ignore[call-overload]
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    error_model='numpy',
    _nrt=False,
)
