# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""This host's resource providers in Placement.

Role
    Publish uplinks as providers below the compute node's, and withdraw them.
Doors
    :class:`.publisher.Publisher`, :class:`.withdrawal.Withdrawal`; the
    requests are in :class:`.client.PlacementClient`.
Invariants
    Writes are checked by generation, and tried again. Only our providers are
    changed, and one trait of the compute node's. A provider that a server has
    a claim on is reserved, not deleted.
Tests
    ``nova_vhpc/tests/unit/placement``; with a real Placement
    ``nova_vhpc/tests/functional/topology``.
"""
