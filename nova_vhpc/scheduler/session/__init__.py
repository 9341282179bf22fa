# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""One request to nova-scheduler, from its first member to its last.

Role
    Remember, on Nova's host states, which members went where, and make the
    plan when the first one is weighed.
Doors
    :class:`.session.SchedulingSession` filters and weighs;
    :mod:`.assembly` makes the request for a plan, for ``nova-vhpc-explain``
    too.
Invariants
    Requests run at the same time in one worker and share nothing but the
    caches of :mod:`nova_vhpc.scheduler.sources`. A plan is followed while it
    can be, and made anew at most :data:`.plan_score.MAX_PLANS` times.
Tests
    ``nova_vhpc/tests/unit/scheduler/session``, and whole requests in
    ``nova_vhpc/tests/unit/scheduler/test_filters.py`` and ``test_weights.py``.
"""
