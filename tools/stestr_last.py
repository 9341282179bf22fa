#!/usr/bin/env python3
# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Print what the last run in a repository of stestr says, for tools/test.sh.

``stestr_last.py counts REPOSITORY`` prints how many tests passed, failed and
were skipped; ``failed`` prints a regex of what failed. ``stestr run
--failing`` would not do: it knows no test by the name that a failed
``setUpClass`` is reported with, and runs nothing.
"""

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


def failed(summary: testtools.StreamSummary) -> str:
    """Return a regex that selects what failed; empty if nothing did."""
    cases = [case for case, _ in summary.errors + summary.failures]
    cases += summary.unexpectedSuccesses
    names = {
        re.sub(r'^(?:setUp|tearDown)(?:Class|Module) \((.+)\)$', r'\1', name)
        for name in (case.id() for case in cases)
    }
    return '|'.join(rf'^{re.escape(name)}(\.|$)' for name in sorted(names))


def main() -> int:
    """Read the last run in a repository."""
    say = {'counts': counts, 'failed': failed}[sys.argv[1]]
    run = util.get_repo_open(repo_url=sys.argv[2]).get_latest_run()
    summary = testtools.StreamSummary()
    summary.startTestRun()
    try:
        run.get_test().run(summary)
    finally:
        summary.stopTestRun()
    print(say(summary))
    return 0


if __name__ == '__main__':
    sys.exit(main())
