# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Virtual clusters for HPC on OpenStack Nova.

Role
    Place the members of a virtual cluster together, and let their vCPUs run
    together, without harm to other servers.
Doors
    What ``pyproject.toml`` names: the filter and weigher that nova-scheduler
    loads, the programs of :mod:`nova_vhpc.cli`, plugins.
Invariants
    Scheduler and agent meet in Placement only. Imports run downwards
    (import-linter). What decides, :mod:`nova_vhpc.control`,
    :mod:`nova_vhpc.flavor` and the planner, knows no clock, file or socket.
    Nothing is written to a server that did not ask.
Tests
    ``nova_vhpc/tests``: ``unit`` needs nothing, ``functional`` real services
    and guests, ``scenario`` a cloud.
"""
