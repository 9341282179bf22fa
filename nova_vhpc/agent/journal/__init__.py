# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The journal: original settings, on the disk before the first write.

Role
    Keep, for each guest, its original settings and what was written, so that
    any later agent can restore it.
Doors
    :class:`.store.Journal` holds one record per server and a copy in the
    domain's metadata; :class:`.record.JournalRecord` is the format;
    :mod:`.written_values` tells own values from external ones.
Invariants
    A record is whole or not there: written aside, synced, renamed, with a
    checksum. A newer sequence number wins. A record that cannot be read, or
    is of a newer version, is kept for people and never overwritten.
Tests
    ``unit/agent/journal``; ``functional/agent/test_state_path``.
"""
