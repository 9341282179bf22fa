# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Extra specs of flavors: what the keys are, and which go together.

Role
    One reading of ``vhpc:`` extra specs for scheduler, agent, vendordata and
    clients, and recipes that write consistent sets.
Doors
    :mod:`.extra_specs` (keys and their values), :mod:`.recipes` (what ``flavor
    set`` writes), :mod:`.validation` (what is wrong, and Nova's own
    validators), :mod:`.request_groups` (claims on uplinks).
Invariants
    Pure, and free of Nova: extra specs are mappings of text.
Tests
    ``nova_vhpc/tests/unit/flavor``; in a real Nova
    ``nova_vhpc/tests/functional/cli``.
"""
