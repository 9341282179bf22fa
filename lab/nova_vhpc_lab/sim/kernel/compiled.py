# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
