# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-top``: what agents do, by virtual cluster, like ``top``.

Role
    Turn status documents into a table, on a screen or as lines.
Doors
    :mod:`.sources` gets the documents, :func:`.reader.snapshot` reads them
    into :mod:`.model`, :class:`.app.TopApp` and :func:`.report.report` show
    them; :mod:`nova_vhpc.cli.top` is the program.
Invariants
    Only :mod:`.app` and :mod:`.table` need Textual, so ``--once`` does
    without. What is not known is ``-``, never 0; colours only repeat what
    words say; names cannot steer the terminal. Health is shown as the agent
    judges it.
Tests
    ``nova_vhpc/tests/unit/top`` and ``unit/cli/test_top``; with two agents
    and a broker ``nova_vhpc/tests/functional/phase_exchange/test_top``.
"""
