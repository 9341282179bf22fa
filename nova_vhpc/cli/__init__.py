# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Programs, and commands of the ``openstack`` client.

``launch`` has the console scripts, each of which loads the module of its
program. The entry points of ``openstack.vhpc.v1`` name the classes behind
``openstack vhpc ...``. Nothing else in the package imports this one. Tests
are in ``tests/unit/cli`` and ``tests/functional/cli``.
"""
