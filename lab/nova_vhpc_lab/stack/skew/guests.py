# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Wait until the guests of both releases run and have their addresses."""

from nova_vhpc_lab.stack.demo import state


def run(demo: state.Demo) -> None:
    """Wait for the guests, and remember their settings."""
    demo.show.heading('Guests run')
    demo.wait_for_progress()
    demo.wait_for_addresses()
    demo.remember_settings()
