# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Simulated hosts: the kernel's CPU scheduler, guests' programs, the agent.

Deterministic by seed; no clock, no file, no socket. Imported by the bench and
the tests only: the daemon and nova-scheduler need neither numpy nor Numba.
"""
