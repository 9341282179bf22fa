# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agent of a compute host."""

from nova_vhpc.agent import no_eventlet

no_eventlet.refuse()
