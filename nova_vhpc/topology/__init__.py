# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Bridges and uplinks of a host, and the networks of its ports. Pure values.

Role
    Find the uplinks that guests can reach, from sysfs, ovsdb and the
    operator's rules; name them in Placement; tell a port's network.
Doors
    :class:`.discovery.Discovery` finds; :mod:`.model` has the values, and the
    names of providers and traits; :mod:`.port_network` has networks of ports.
Invariants
    Two names of one wire are found, whatever joins them: patch ports, veth
    pairs, VLANs, bonds, functions of a port. Addresses are compared as
    addresses, and kept as the operator wrote them. Nothing is written.
Tests
    ``nova_vhpc/tests/unit/topology``; on real bridges
    ``nova_vhpc/tests/functional/topology``.
"""
