# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A whole OpenStack cloud as processes below one directory.

Role
    Start Keystone, Glance, Placement, Neutron with OVN, Nova, a broker and a
    database of released packages in about half a minute, with compute hosts
    that are network namespaces and guests of QEMU.
Doors
    :class:`.cloud.Cloud`; :mod:`.scenario` adds hosts, networks and a
    virtual cluster; :mod:`.demo` shows it.
Invariants
    Services of the machine are not touched, and nothing is left running.
    Every wait has a limit, times ``VHPC_PATIENCE``.
Tests
    ``nova_vhpc/tests/functional/stack``.
"""
