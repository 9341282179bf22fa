# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Slots of the wall clock in which a cluster runs on all of its hosts.

Role
    Agree with other hosts, without a server, on slots that fit on all of them.
Doors
    :class:`.protocol.SlotProtocol`: ``demand`` what gangs want, ``receive``
    messages, ``step`` and send what it returns, read ``agreed``.
    :class:`.clock_offset.ClockOffset` compares wall clocks by messages.
Invariants
    No slot of a host's table has more vCPUs than the host has CPUs, whatever
    arrives. What other hosts say is kept by :mod:`nova_vhpc.control.leases`.
Tests
    ``nova_vhpc/tests/unit/control/slots``, with a simulated network that
    loses, repeats and forges messages; ``tools/soak.sh slots``.
"""
