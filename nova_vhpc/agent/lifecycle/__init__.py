# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The life of a guest: found, adopted, followed, written, restored.

Role
    Bring each domain from libvirt's events to the state that its flavor, its
    operator and the agent's own state ask for.
Doors
    :class:`.manager.GuestManager` connects the parts and is what the daemon
    calls. :mod:`.events` and :mod:`.resync` enqueue domains; :mod:`.reconcile`
    looks at one; :mod:`.adoption` makes a guest of a new one; :mod:`.writer`
    writes what the controller planned; :mod:`.restore_queue` restores, and
    retries; :mod:`.after_crash` restores what a killed agent has left.
Invariants
    The journal holds every value before it is written. A guest is written
    under its lock, in the run that was adopted, if nothing holds it. What an
    earlier agent left is restored before a domain is read. A restore is
    retried until it is exact or the run has ended, also while stopping.
Tests
    ``unit/agent/lifecycle`` on a libvirt in memory (``test_any_life`` draws
    whole lives); ``functional/agent/test_follow``, ``test_trouble``,
    ``test_restarts`` and ``test_kills`` on real libvirt and QEMU.
"""
