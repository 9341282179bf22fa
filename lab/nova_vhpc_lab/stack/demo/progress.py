# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The guests run, and send packets to each other."""

import time

from nova_vhpc_lab.stack.demo import frames, state


def run(demo: state.Demo) -> None:
    """Wait until all guests make progress."""
    demo.show.heading('4. Real QEMU guests run')
    demo.wait_for_progress()
    demo.wait_for_addresses()
    demo.remember_settings()
    first = {uuid: demo.progress(uuid) for uuid in demo.names}
    time.sleep(4)
    demo.show.table(
        'Progress that the programs in the guests report',
        ('server', 'program', 'first', 'four seconds later'),
        [
            (
                name,
                'hog' if uuid in demo.others else 'barrier',
                first[uuid],
                demo.progress(uuid),
            )
            for uuid, name in demo.names.items()
        ],
    )
    frames.show(demo, 'Frames on the uplinks, before an agent writes')
