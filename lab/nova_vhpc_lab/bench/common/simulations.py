# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the subcommands that simulate hosts have in common."""

import concurrent.futures
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

_Result = TypeVar('_Result')
_Made = TypeVar('_Made', covariant=True)


class Job(Protocol[_Made]):
    """One simulation; it must be picklable."""

    def run(self) -> _Made:
        """Run it, in a process of its own or in this one."""
        ...


def run_all(jobs: Sequence[Job[_Result]], workers: int) -> Iterator[_Result]:
    """Yield the results in the order of the jobs.

    :param workers: number of jobs that run at the same time.
    """
    if workers == 1 or len(jobs) == 1:
        yield from map(_run, jobs)
        return
    with concurrent.futures.ProcessPoolExecutor(
        workers, initializer=_leave_signals
    ) as pool:
        try:
            yield from pool.map(_run, jobs)
        except BaseException:
            # Jobs that have not begun need not be waited for, nor others.
            pool.shutdown(wait=False, cancel_futures=True)
            end_workers()
            raise


def end_workers() -> None:
    """End the processes that run jobs, which may take minutes more."""
    for worker in multiprocessing.active_children():
        worker.terminate()


def _leave_signals() -> None:
    """Leave Ctrl-C to the program, which ends this worker by SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _run(job: Job[_Result]) -> _Result:
    return job.run()
