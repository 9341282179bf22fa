# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The program that members run: ``nova-vhpc-hosts``.

Role
    Turn the vendordata of a member into files for launchers of MPI and for job
    schedulers, and say what makes programs nap while they wait.
Doors
    :func:`.script.script` returns the program as one file, which members get
    with the vendordata; :mod:`.topology_files` is for ``openstack vhpc cluster
    topology``, too.
Invariants
    Python 3.6 and its standard library; no two modules have a name in common,
    because they are joined.
Tests
    ``nova_vhpc/tests/unit/vendordata/guest`` runs the joined program; a real
    Slurm reads its files in ``nova_vhpc/tests/functional/vendordata``.
"""
