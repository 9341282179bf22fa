# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The laboratory: how nova-vhpc is measured, and what it is compared with.

Role
    Benches, simulated hosts, real guests for tests, rival policies, whole
    clouds as processes. No cloud installs it.
Doors
    ``nova-vhpc-bench`` (:mod:`.cli`), ``tools/demo.sh``
    (:mod:`nova_vhpc_lab.stack.demo`), ``tools/soak.sh``
    (:mod:`nova_vhpc_lab.soak`), ``tools/host-vm.sh``
    (:mod:`nova_vhpc_lab.hostvm`), ``tools/mutations.sh``
    (:mod:`.mutations`).
Invariants
    It may import ``nova_vhpc``, never the reverse. What is compared is
    measured in the same run; keys of ``--json`` stay.
Tests
    ``lab/nova_vhpc_lab/tests``.
"""
