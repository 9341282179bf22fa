# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Programs, and commands of the ``openstack`` client: one class, two doors.

Role
    Parse command lines, call the rest of the package, print what it says.
Doors
    :mod:`.launch` has the console scripts, each of which loads the module of
    its program. The entry points of ``openstack.vhpc.v1`` name the command
    classes behind ``openstack vhpc ...``; :mod:`.program` runs the same
    classes as ``nova-vhpc-explain``, ``nova-vhpc-flavor`` and
    ``nova-vhpc-ctl``.
Invariants
    No parser takes abbreviations. A failure is one line on stderr: what is
    wrong, where, what to do. What is unknown is empty, null in JSON. Agents
    and their hosts are judged by their own health, never here. Commands to
    agents need no login and no library of a cloud.
Tests
    ``nova_vhpc/tests/unit/cli``; with real services
    ``nova_vhpc/tests/functional/cli``.
"""
