# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""libvirt: one connection, its calls in threads, its XML.

Role
    Talk to libvirt so that a call that hangs holds up no other domain.
Doors
    :class:`.connection.Connection` stays connected;
    :class:`.executor.DomainExecutor` runs calls, one queue per domain;
    :mod:`.cputune` reads and writes cputune; :mod:`.domain_xml` and
    :mod:`.interfaces` parse the XML; :mod:`.cgroup_weight` writes
    ``cpu_shares`` into a domain's control group.
Invariants
    No list call asks for anything for which libvirt must query a QEMU
    process: one that does not answer would blind the agent for all.
Tests
    ``unit/agent/libvirt``; ``functional/agent/test_wakeup``, ``test_trouble``.
"""
