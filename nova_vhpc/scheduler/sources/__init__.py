# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the scheduler reads: Placement, Nova's databases, files.

Role
    Give plain values to the rooms above, from caches where a request must not
    wait.
Doors
    :func:`.uplink_cache.for_process` has all hosts' uplinks;
    :mod:`.nova_db` and :func:`.server_groups.for_process` what host states
    lack; :func:`.cost_table_file.read` the operator's measurements.
Invariants
    Every query has a time limit. A source that does not answer is logged, and
    the request goes on with what is known. Nothing is written.
Tests
    ``nova_vhpc/tests/unit/scheduler/sources``.
"""
