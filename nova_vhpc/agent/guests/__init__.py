# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The guests of this host, and what the agent knows of each.

Role
    Hold the state that the other parts share.
Doors
    :class:`.guest.Guest` is one run of a managed domain, with the holds that
    forbid writes; :class:`.registry.GuestRegistry` knows all guests, and which
    domains are none; :class:`.registry.WritePermission` says whether anything
    may be written; :class:`.quarantine.Quarantine` counts failures.
Invariants
    A guest is one run: the next run of its domain is another guest. The map
    of guests is replaced, never changed, so that the tick needs no lock.
Tests
    ``unit/agent/guests``.
"""
