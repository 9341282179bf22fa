# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""This host's resource providers in Placement.

Role
    Publish uplinks as children of the compute node, hold back slots of guests
    whose uplink changed, and withdraw all of it.
Doors
    :class:`.publisher.Publisher` and :class:`.withdrawal.Withdrawal`, both by
    :class:`.client.PlacementClient`.
Invariants
    Of what Nova and Neutron own, only the trait ``CUSTOM_VHPC_HOST`` of the
    root provider is written. Every write names the generation that was read. A
    provider that a server has claimed is reserved, never deleted.
Tests
    ``nova_vhpc/tests/unit/placement``, and with a real Placement
    ``nova_vhpc/tests/functional/agent``.
"""
