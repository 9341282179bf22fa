# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Results of checks, kept over a restart of the machine."""

import json
import pathlib
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any


class Report:
    """Runs checks, and says on a line what became of each.

    :param path: file that keeps the results over a restart.
    :param output: path of what is written to, such as a serial port.
    """

    def __init__(self, path: pathlib.Path, output: str) -> None:
        self._path = path
        self._output = output
        self._results: dict[str, bool] = {}
        if path.exists():
            self._results = json.loads(path.read_text())

    def run(
        self, checks: Iterable[Callable[..., None]], *fixtures: Any
    ) -> None:
        """Run checks in order; one that fails does not end the others.

        :param fixtures: what every check is given.
        """
        for check in checks:
            name = check.__name__.removeprefix('check_').replace('_', ' ')
            began_s = time.monotonic()
            try:
                check(*fixtures)
            except Exception:
                self.say(traceback.format_exc())
                self._results[name] = False
            else:
                self._results[name] = True
            took_s = time.monotonic() - began_s
            verdict = 'ok' if self._results[name] else 'FAILED'
            self.say(f'{verdict:6} {took_s:5.0f} s  {name}')
            self._path.write_text(json.dumps(self._results))

    def say(self, text: str) -> None:
        """Write a line, or several."""
        with open(self._output, 'w') as file:
            file.write(f'{text}\n')

    def say_totals(self) -> None:
        """Write the line that tools/host-vm.sh ends with."""
        passed = sum(self._results.values())
        self.say(f'{passed} passed, {len(self._results) - passed} failed')
