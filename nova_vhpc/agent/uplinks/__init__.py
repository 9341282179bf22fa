# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Uplinks of this host: published to Placement, and claims made to steer.

Role
    Publish bridges and uplinks; read servers' claims on them; decide what
    makes a server's packets take its claimed uplinks, and let it.
Doors
    :class:`.publish_worker.PublishWorker` publishes;
    :class:`.binder.UplinkBinder` binds, restores, and has the status;
    :class:`.steering.Steering` alone decides by what, or why by nothing.
Invariants
    The port that Neutron and OVN know counts, not where the tap is. An
    unknown network steers nothing. A claim is said to steer once its effect
    was seen. Nothing is written for servers without a claim.
Tests
    ``nova_vhpc/tests/unit/agent/uplinks``; with real Open vSwitch and OVN
    ``nova_vhpc/tests/functional/agent`` (``test_steering``,
    ``test_encap_ip*``, ``test_bond_entry*``) and
    ``nova_vhpc/tests/functional/topology``.
"""
