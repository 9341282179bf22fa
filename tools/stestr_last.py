#!/usr/bin/env python3
# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Print what the last run in a repository of stestr says, for tools/test.sh.

``stestr_last.py counts REPOSITORY`` prints how many tests passed, failed and
were skipped; ``failed REPOSITORY FILE`` prints a regex of what failed, and of
what did not run although the file lists it. ``stestr run --failing`` would
not do: it knows no test by the name that a failed ``setUpClass`` is reported
with, and runs nothing.
"""

import pathlib
import re
import sys

import testtools
from stestr.repository import util


def counts(summary: testtools.StreamSummary) -> str:
    """Return how many tests passed, failed and were skipped."""
    skipped = len(summary.skipped)
    bad = len(summary.failures) + len(summary.errors)
    bad += len(summary.unexpectedSuccesses)
    return f'{summary.testsRun - bad - skipped} {bad} {skipped}'


def failed(
    summary: testtools.StreamSummary, ran: set[str], listed: list[str]
) -> str:
    """Return a regex of what failed or did not run; empty if nothing."""
    cases = [case for case, _ in summary.errors + summary.failures]
    cases += summary.unexpectedSuccesses
    names = {
        re.sub(r'^(?:setUp|tearDown)(?:Class|Module) \((.+)\)$', r'\1', name)
        for name in (case.id() for case in cases)
    }
    names |= {
        name
        for name in listed
        if name not in ran
        and not any(name.startswith(f'{failing}.') for failing in names)
    }
    return '|'.join(rf'^{re.escape(name)}(\.|$)' for name in sorted(names))


def main() -> int:
    """Read the last run in a repository."""
    run = util.get_repo_open(repo_url=sys.argv[2]).get_latest_run()
    summary = testtools.StreamSummary()
    ran: set[str] = set()
    result = testtools.CopyStreamResult(
        [summary, testtools.StreamToDict(lambda test: ran.add(test['id']))]
    )
    result.startTestRun()
    try:
        run.get_test().run(result)
    finally:
        result.stopTestRun()
    if sys.argv[1] == 'counts':
        print(counts(summary))
    else:
        listed = pathlib.Path(sys.argv[3]).read_text().split()
        print(failed(summary, ran, listed))
    return 0


if __name__ == '__main__':
    sys.exit(main())
