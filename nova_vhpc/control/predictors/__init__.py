# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Predictors of the next period's I/O events.

Role
    The paper's predictors (tables II and III), and ``adaptive``, which mixes
    them and is the default.
Doors
    :class:`.base.Predictor` is what a plugin implements; the entry points of
    ``nova_vhpc.predictors`` name them.
Invariants
    State is bounded in bytes, and any input is taken: ``base`` cleans it.
Tests
    ``nova_vhpc/tests/unit/control/predictors``; accuracy on recorded traces by
    ``nova-vhpc-bench predictors``.
"""
