# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Faults of real guests, of libvirt and of the agent, in seeded rounds."""
