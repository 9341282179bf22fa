# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Tests of nova-vhpc."""

import logging

# What Numba says of each thing that it compiles is a hundred thousand lines.
logging.getLogger('numba').setLevel(logging.WARNING)
