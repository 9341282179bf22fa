# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Open files and garbage collection of the daemon."""

import gc
import resource


def raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit.

    Each guest keeps a dozen files open, so the usual 1024 are too few.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def settle_memory() -> None:
    """Exempt all present objects from garbage collection.

    Otherwise every full collection visits all imported modules, which takes
    some 30 ms in the middle of a tick.
    """
    gc.collect()
    gc.freeze()
    # A tick makes thousands of short-lived objects, none of them in cycles.
    gc.set_threshold(50_000, 10, 10)


def collect_young() -> None:
    """Free the reference cycles that became garbage since the last call.

    A connection to a message broker that fails leaves 70 objects in cycles,
    too few to be collected for half an hour, and 128 KiB of buffers with them.
    Takes less than a millisecond: older objects are not visited.
    """
    gc.collect(0)
