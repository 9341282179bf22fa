# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agent of a compute host.

Role
    Find the host's servers, measure and control those that asked, publish
    the host's uplinks, and take everything back.
Doors
    :class:`.daemon.service.Service` is the process;
    :mod:`.daemon.restore_host` restores without one.
Invariants
    Original settings are in the journal before the first write, and restore
    is exact; doubt is resolved towards the operator's values. The tick never
    waits for libvirt. One server's failure concerns that server only. Threads
    are native.
Tests
    ``nova_vhpc/tests/unit/agent``; with real libvirt, QEMU, Open vSwitch and
    RabbitMQ ``nova_vhpc/tests/functional/agent`` and ``phase_exchange``.
"""

from nova_vhpc.agent import no_eventlet

no_eventlet.refuse()
