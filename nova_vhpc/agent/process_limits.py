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


def collect() -> None:
    """Free reference cycles, also those of objects that lived for long.

    A connection to a message broker leaves 128 KiB of buffers in cycles, and
    there is a new one whenever a cluster is renamed. By itself, Python would
    not look at objects that have lived through a collection for hours: each
    tick makes too few that stay. Takes a millisecond with 100 guests, because
    what is there since the start is exempt.
    """
    gc.collect()
