# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Binders: each steers the packets of one kind of network, in one way.

Role
    ``encap_ip`` writes keys of ports (tenant networks of OVN); ``bond_entry``
    sets entries of bonds (provider networks).
Doors
    :class:`.base.Binder` is the interface of plugins;
    :func:`.base.load` loads those that ``[vhpc_agent]binders`` names.
Invariants
    Journal before the first write; only what the agent has written is
    restored, and to what it was. External changes are left alone.
Tests
    ``nova_vhpc/tests/unit/agent/uplinks/binders``.
"""
