#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Print 'passed failed skipped' of stestr's last run, for tools/test.sh."""

import sys

import testtools
from stestr.repository import util


def main() -> int:
    """Read the last run in the repository of this directory."""
    repository = util.get_repo_open(repo_url='.')
    run = repository.get_latest_run()
    summary = testtools.StreamSummary()
    summary.startTestRun()
    try:
        run.get_test().run(summary)
    finally:
        summary.stopTestRun()
    skipped = len(summary.skipped)
    bad = len(summary.failures) + len(summary.errors)
    bad += len(summary.unexpectedSuccesses)
    print(summary.testsRun - bad - skipped, bad, skipped)
    return 0


if __name__ == '__main__':
    sys.exit(main())
