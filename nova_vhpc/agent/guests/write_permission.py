# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Whether any guest may be written now, and which servers may not."""

import threading


class WritePermission:
    """Whether the agent may write at all, and which servers it may not write.

    :ivar dry_run: whether nothing is ever written.
    :ivar paused: whether an operator has paused the agent.
    :ivar ending: set when the agent stops; guests are then only restored.
    :ivar restored: UUIDs of servers that an operator had restored; they are
        not written until ``resume``.
    :ivar leaving: UUIDs of servers that are migrating according to Nova.
    """

    def __init__(self, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.paused = False
        self.ending = threading.Event()
        self.restored: set[str] = set()
        self.leaving: frozenset[str] = frozenset()

    @property
    def open(self) -> bool:
        """Whether guests may be written: no dry run, pause or shutdown."""
        return not (self.dry_run or self.paused or self.ending.is_set())
