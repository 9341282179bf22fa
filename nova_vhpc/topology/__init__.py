# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Bridges, NICs and tunnels of a host, as uplinks that can be claimed.

Role
    Find what guests can reach, and name it in Placement's words.
Doors
    :class:`.discovery.Discovery` returns findings; :mod:`.model` is the
    contract between agent and filter. :mod:`.survey` looks at the whole host,
    :mod:`.ovs_uplinks` at Open vSwitch, :mod:`.links` at the kernel,
    :mod:`.port_network` at the networks of guests' ports.
Invariants
    Nothing is written. What is unknown is left out and said; addresses are
    compared as addresses, and written as the operator wrote them.
Tests
    ``nova_vhpc/tests/unit/topology``; with real Open vSwitch and OVN
    ``nova_vhpc/tests/functional/topology``.
"""
