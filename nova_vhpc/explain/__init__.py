# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Why members go where they go, and claims that went astray.

Role
    Say of a whole cloud, or of one in a file, what filter, planner and weigher
    decide; find claims that Nova and Placement disagree on.
Doors
    :func:`.explain.explain` answers a question that
    :mod:`.request_file` or :mod:`.cloud` filled in;
    :class:`.claim_audit.ClaimAudit` finds and mends claims.
Invariants
    Nothing is decided here: the scheduler's own functions are called, with the
    request of :mod:`nova_vhpc.scheduler.session.assembly`. Only
    :meth:`.claim_audit.ClaimAudit.mend` writes, to Placement alone.
Tests
    ``nova_vhpc/tests/unit/explain``; against a real scheduler
    ``nova_vhpc/tests/functional/explain`` and ``functional/cli``.
"""
