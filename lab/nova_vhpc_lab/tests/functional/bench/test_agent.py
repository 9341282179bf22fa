# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench agent`` on a small scale."""

import json
import pathlib
import subprocess
import sys
import tempfile

from oslotest import base

KEYS = {
    'vms',
    'vcpus',
    'core_fraction',
    'tick_p99_ms',
    'us_per_vm',
    'libvirt_us_per_vm',
    'rss_mib',
    'scrape_ms',
    'scraped_tick_p99_ms',
    'scraped_shift_p99_ms',
}
PLUGINS = ('slice_policy', 'pinning_policy', 'predictor', 'follows_io')


class TestBench(base.BaseTestCase):
    def test_result_has_all_keys_and_soak_shows_no_growth(self) -> None:
        file = pathlib.Path(tempfile.mkdtemp(), 'agent.json')
        done = subprocess.run(
            [
                sys.executable,
                '-c',
                'import argparse, sys\n'
                'from nova_vhpc_lab.bench.agent import driver\n'
                'parser = argparse.ArgumentParser()\n'
                'driver.add_arguments(parser)\n'
                'sys.exit(driver.run(parser.parse_args()))',
                *('--vms', '10', '--vcpus', '2', '--seconds', '3'),
                *('--guests', '2', '--soak', '30', '--json', str(file)),
                *('--slice-policy', 'atc', '--pinning-policy', 'io_pool'),
            ],
            capture_output=True,
            text=True,
            timeout=400,
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        result = json.loads(file.read_text())
        self.assertLessEqual(KEYS, set(result))
        self.assertEqual(10, result['vms'])
        self.assertGreater(result['ticks'], 5)
        self.assertEqual(0, result['tick_failures'])
        self.assertGreater(result['writes'], 0)
        self.assertEqual(
            ('atc', 'io_pool', 'adaptive', True),
            tuple(result[name] for name in PLUGINS),
        )
        self.assertGreater(result['libvirt_us_per_vm'], 0)
        self.assertGreater(result['scrape_ms'], 0)
        self.assertGreaterEqual(result['soak']['seconds'], 30)
        self.assertFalse(result['soak']['grew'], result['soak'])
