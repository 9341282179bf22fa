# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual clusters on many simulated hosts: placed, run and compared.

The planner places them, a controller on each host runs them, and messages
between hosts take time (:mod:`nova_vhpc_lab.sim.hosts`).
"""
