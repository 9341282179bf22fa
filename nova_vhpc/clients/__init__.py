# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Sessions of the services that are called, and why they fail.

Role
    Log in by an option group (agent, vendordata) or by clouds.yaml (console
    scripts), and say in one line which option to change.
Doors
    :func:`.credentials.adapter` and :func:`.credentials.check`;
    :func:`.openstack.connect` and :func:`.openstack.asked`;
    :func:`.failures.reason`.
Invariants
    No secret in a message; wrong values are refused when options are read.
Tests
    ``nova_vhpc/tests/unit/clients``; with a real Keystone
    ``nova_vhpc/tests/functional/clients``.
"""
