# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What :mod:`~nova_vhpc.control.predictors.adaptive` mixes.

Role
    Experts on the members' history, and what they share in a cluster.
Doors
    :class:`~nova_vhpc.control.predictors.adaptive.AdaptivePredictor` alone.
Invariants
    As for all predictors: bounded state, no clock.
Tests
    ``nova_vhpc/tests/unit/control/predictors/mixture``.
"""
