# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What a flavor says of a virtual cluster, and whether it fits together.

Role
    Parse, check and write the extra specs of flavors: the keys ``vhpc:*`` and
    the request groups that go with them.
Doors
    :func:`.extra_specs.parse` reads, for scheduler and agent, and never
    raises; :func:`.recipes.recipe` and :func:`.recipes.change` make a flavor
    right; :func:`.validation.problems` says what does not fit together. Nova's
    API loads the validators of :mod:`.extra_specs`.
Invariants
    Pure: no cloud, no files. A wrong value is named with its key and what is
    allowed. What others wrote into a flavor stays.
Tests
    ``nova_vhpc/tests/unit/flavor``; with a real Nova
    ``nova_vhpc/tests/functional/cli``.
"""
