# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Health of the agent and its host: judged once, read by everybody.

Role
    Say of each part of the agent whether it works, what is off, since when,
    and what to do.
Doors
    :class:`.watch.HealthWatch` judges a status document and adds the key
    ``health``; :func:`sentences` turns that key into lines. The status
    socket, metrics, log, ``nova-vhpc-ctl``, ``nova-vhpc-top``, the upgrade
    check and ``openstack vhpc`` read the key and judge nothing themselves.
Invariants
    :mod:`.rules` knows the status document only: no clock, no libvirt.
Tests
    ``nova_vhpc/tests/unit/agent/health``.
"""

from nova_vhpc.agent.health.watch import sentences as sentences
