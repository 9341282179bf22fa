# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Delete the servers."""

from nova_vhpc_lab.stack.demo import state, uplinks


def run(demo: state.Demo) -> None:
    """Delete the servers; check that all uplinks are free."""
    demo.show.heading('10. Clean up')
    uplinks.delete_servers(demo)
