# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The CPU scheduler of a simulated host, compiled by Numba.

Functions over one container of arrays (:class:`state.State`), driven by
events. The names of Linux's functions stand in the docstrings; the versions
meant are 6.12 to 6.18. ``doc/source/contributor/simulator.rst`` says what is
not modelled.
"""
