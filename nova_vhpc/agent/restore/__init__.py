# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Restore a domain exactly, whatever is left of what it was before.

Role
    Find how a domain was set before an agent wrote to it, and write that.
Doors
    :class:`.recovery.Restorer` recovers a domain that an earlier agent left;
    :func:`.cputune.restore` writes original values that are not in force;
    :func:`.incoming.with_original_settings` does so in the XML of a domain
    that arrives.
Invariants
    In order of trust: the journal's record of this run, the copy in the live
    metadata, the persistent definition; a value that is neither original nor
    written by an agent is external and stays. In doubt nothing is written.
    A record is removed only once its values are in force.
Tests
    ``unit/agent/restore``; ``functional/agent/test_restore``,
    ``test_restore_away`` and ``test_kills`` on real libvirt and QEMU.
"""
