# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Vendordata: what members of a virtual cluster are told of each other.

Role
    Answer Nova's requests for dynamic vendordata with hostfiles, flags of MPI
    libraries, routes, and the topology of the cluster.
Doors
    :func:`.wsgi.make_application` serves; :func:`.answer.answer` makes the
    answer of a :class:`.model.Cluster` that :mod:`.nova` reads. The package
    ``guest`` is the program that members run.
Invariants
    An answer has servers of the asking server's project only, and
    :mod:`.opaque_ids` instead of names of the operator's.
Tests
    ``nova_vhpc/tests/unit/vendordata``, with real guests
    ``nova_vhpc/tests/functional/vendordata``.
"""
