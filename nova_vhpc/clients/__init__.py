# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Sessions to OpenStack's services, as operators configure them.

Role
    Turn an option group of keystoneauth, or a profile of ``clouds.yaml``,
    into a client that waits for bounded times.
Doors
    :func:`.credentials.adapter` for option groups, :mod:`.openstack` for
    profiles, :mod:`.neutron` for Neutron.
Invariants
    No secret stands in a message. Each failure names group or profile, and
    what to do (:mod:`.failures`).
Tests
    ``nova_vhpc/tests/unit/clients``; real Keystone
    ``nova_vhpc/tests/functional/clients``.
"""
