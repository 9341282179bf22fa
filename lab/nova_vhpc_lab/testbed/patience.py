# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How long tests, demo and soak wait for what must come."""

PATIENCE_S = 300.0
"""Time after which what is waited for counts as hung, in seconds.

Emulated guests and a whole cloud may share two CPUs with other jobs.
"""
