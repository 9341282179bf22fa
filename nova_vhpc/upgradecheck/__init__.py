# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The command ``nova-vhpc-status upgrade check``.

Role
    Say before and after an upgrade what keeps this host from working.
Doors
    :class:`.facts.Checks` reads the facts of each check, those of services by
    ``cloud``; ``checks`` and ``scheduler`` judge them.
Invariants
    A check that cannot read its facts warns or fails, alone: only what was
    checked is a success. The running agent is judged by its own health,
    never here.
Tests
    ``nova_vhpc/tests/unit/upgradecheck``.
"""
