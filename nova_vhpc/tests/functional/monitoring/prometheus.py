# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A real Prometheus, for tests."""

import json
import pathlib
import subprocess
import time
import urllib.parse
import urllib.request
from typing import Any

import fixtures
import yaml

from nova_vhpc_lab.stack import cloud
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class Prometheus(fixtures.Fixture):
    """Scrapes every second.

    :param jobs: ``scrape_configs``.
    :param rules: file with alert rules.
    """

    def __init__(self, jobs: list[dict[str, Any]], rules: pathlib.Path):
        super().__init__()
        self._jobs = jobs
        self._rules = rules
        self._url = ''

    def _setUp(self) -> None:
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (port,) = cloud.free_ports(1)
        self._url = f'http://127.0.0.1:{port}'
        config = folder / 'prometheus.yml'
        config.write_text(
            yaml.safe_dump(
                {
                    'global': {
                        'scrape_interval': '1s',
                        'evaluation_interval': '1s',
                    },
                    'rule_files': [str(self._rules)],
                    'scrape_configs': self._jobs,
                }
            )
        )
        log = folder / 'log'
        with log.open('wb') as file:
            process = subprocess.Popen(
                [
                    'prometheus',
                    f'--config.file={config}',
                    f'--storage.tsdb.path={folder / "data"}',
                    f'--web.listen-address=127.0.0.1:{port}',
                    '--log.level=warn',
                ],
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.addCleanup(process.wait, PATIENCE_S)
        self.addCleanup(process.kill)
        end_s = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            if process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f'Prometheus: {log.read_text()}')
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f'{self._url}/-/ready', timeout=10):
                return True
        except OSError:
            return False

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data that Prometheus' API answers with."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(
            f'{self._url}/api/v1/{path}?{query}', timeout=60
        ) as answer:
            return json.load(answer)['data']

    def series(self, query: str) -> list[dict[str, Any]]:
        """Return the series that a query gives now."""
        result: list[dict[str, Any]] = self.get('query', query=query)['result']
        return result
