# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Vendordata: what members of a virtual cluster are told of each other.

Role
    Answer Nova's requests for dynamic vendordata with hostfiles, flags of MPI
    libraries, routes, and the topology of the cluster.
Doors
    :func:`.wsgi.make_application` serves; :class:`.answer.Answers` makes the
    answers of a :class:`.model.Cluster` that :mod:`.nova` reads, once for all
    members (:mod:`.shared_answers`). The package ``guest`` is the program that
    members run.
Invariants
    An answer has servers of the asking server's project only, and
    :mod:`.opaque_ids` instead of names of the operator's, or nothing. Their
    key is never made of a password. All servers of vendordata tell the same
    ranks, whatever their keys.
Tests
    ``nova_vhpc/tests/unit/vendordata``, with real guests
    ``nova_vhpc/tests/functional/vendordata``.
"""
