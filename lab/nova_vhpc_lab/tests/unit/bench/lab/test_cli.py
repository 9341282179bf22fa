# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of ``nova-vhpc-bench lab`` by its command line."""

import argparse
import contextlib
import errno
import io
import json
import os
import tempfile
from pathlib import Path
from unittest import mock

import fixtures
import libvirt

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.common import outputs
from nova_vhpc_lab.bench.lab import (
    cli,
    experiments,
    figures,
    guest_set,
    mixes,
    report,
    runner,
)
from nova_vhpc_lab.testbed import (
    guest_kernel,
    image,
    libvirtd,
)


@contextlib.contextmanager
def no_guests():
    """Have the bench find two CPUs, and need no image of guests."""
    with (
        mock.patch.object(cli, '_two_cpus', return_value=(0, 1)),
        mock.patch.object(guest_set, 'check'),
        mock.patch.object(image, 'build_image'),
    ):
        yield


class CommandLineTest(base.TestCase):
    def parse(self, *words):
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        return parser.parse_args(list(words))

    def test_unknown_mix_or_policy_is_refused(self):
        self.assertRaises(SystemExit, self.parse, '--mixes', 'x')
        self.assertRaises(SystemExit, self.parse, '--policies', 'stock,x')

    def test_empty_list_of_policies_is_refused(self):
        for names in ('', ','):
            self.assert_refused('name at least one', '--policies', names)
        self.assertEqual([], self.parse('--mixes', '').mixes)

    def test_count_below_1_is_refused(self):
        for words in (('-k', '0'), ('-k', '-1'), ('-m', '0')):
            self.assert_refused('is not a whole number from 1', *words)

    def test_unknown_or_invalid_agent_option_is_refused(self):
        self.assert_refused('POLICY:NAME=VALUE', '--option', 'nonsense')
        self.assert_refused('gang_widow_us', '--option', 'a:gang_widow_us=1')
        self.assert_refused("'x'", '--option', 'a:gang_window_us=x')
        self.assert_refused('no agent', '--option', 'stock:guard_margin=2')
        self.assert_refused('NAME=VALUE', '--option', ':guard_margin=2')

    def assert_refused(self, message, *words):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            error = self.assertRaises(SystemExit, self.parse, *words)
        self.assertEqual(2, error.code)
        self.assertIn(message, err.getvalue())

    def test_missing_requirement_is_reported_in_one_line(self):
        for error in (
            libvirtd.LibvirtdError('no libvirtd'),
            libvirt.libvirtError('no emulator'),
        ):
            err = io.StringIO()
            with (
                mock.patch.object(cli, '_two_cpus', return_value=(0, 1)),
                mock.patch.object(guest_set, 'check'),
                mock.patch.object(image, 'build_image'),
                mock.patch.object(runner, 'measure_mix', side_effect=error),
                contextlib.redirect_stderr(err),
            ):
                self.assertEqual(1, cli.run(self.parse('--mixes', 'alone')))
            self.assertEqual(f'nova-vhpc-bench lab: {error}\n', err.getvalue())

    def test_user_without_root_is_refused_before_the_image_is_built(self):
        with (
            mock.patch.object(cli, '_two_cpus', return_value=(0, 1)),
            mock.patch.object(os, 'geteuid', return_value=1000),
            mock.patch.object(image, 'build_image') as build_image,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertEqual(1, cli.run(self.parse('--mixes', 'alone')))
        build_image.assert_not_called()
        self.assertIn('run as root', err.getvalue())

    def test_policy_of_programs_that_nap_is_refused_without_programs(self):
        words = ('--mixes', 'alone', '--policies', 'stock,wait')
        with (
            mock.patch.object(cli, '_two_cpus', return_value=(0, 1)),
            mock.patch.object(image, 'build_image') as build_image,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertEqual(1, cli.run(self.parse(*words)))
        build_image.assert_not_called()
        self.assertIn('wait: only programs', err.getvalue())
        self.assertIn('--programs', err.getvalue())

    def test_full_disk_during_the_image_build_is_reported_in_one_line(self):
        name = self.useFixture(fixtures.TempDir()).path
        full = OSError(errno.ENOSPC, 'No space left on device')
        with (
            mock.patch.dict(os.environ, {'XDG_CACHE_HOME': name}),
            mock.patch.object(cli, '_two_cpus', return_value=(0, 1)),
            mock.patch.object(guest_set, 'check'),
            mock.patch.object(guest_kernel, 'fetch', side_effect=full),
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertEqual(1, cli.run(self.parse('--mixes', 'alone')))
        self.assertEqual(1, len(err.getvalue().splitlines()))
        self.assertIn('No space left on device; it takes', err.getvalue())
        self.assertIn(name, err.getvalue())

    def test_options_of_a_new_policy_add_that_policy(self):
        options, added = cli._policy_options(
            self.parse(
                *('--option', 'wide:gang_window_us=100000'),
                *('--option', 'wide:gang_favour=5'),
            ).option
        )
        self.assertEqual(['wide'], added)
        self.assertEqual(
            {'gang_window_us': '100000', 'gang_favour': '5'},
            options['wide'],
        )

    def test_full_disk_does_not_stop_the_measurement(self):
        with (
            no_guests(),
            mock.patch.object(
                runner,
                'measure_mix',
                return_value=runner.MixRuns({}, [0.0], 0.1),
            ) as measure_mix,
            mock.patch.object(
                figures, 'summarise', return_value={'stock': {'runs': 1}}
            ),
            mock.patch.object(figures, 'overall', return_value={}),
            mock.patch.object(report, 'print_tables') as print_tables,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertRaises(
                outputs.OutputError,
                cli.run,
                self.parse('--mixes', 'alone,hogs', '--json', '/dev/full'),
            )
        self.assertEqual(2, measure_mix.call_count)
        self.assertEqual(2, err.getvalue().count('will retry at the end'))
        self.assertEqual(
            {'alone', 'hogs'}, print_tables.call_args.args[0]['mixes'].keys()
        )

    def test_merged_figures_keep_the_time_of_their_measurement(self):
        entry = dict.fromkeys(figures.FIGURES, 1.0)
        path = Path(self.useFixture(fixtures.TempDir()).path, 'lab.json')
        old = {'stock': {**entry, 'when': 'yesterday'}}
        path.write_text(json.dumps({'mixes': {'alone': old}}))
        with (
            no_guests(),
            mock.patch.object(
                runner,
                'measure_mix',
                return_value=runner.MixRuns({}, [0.0], 0.1),
            ),
            mock.patch.object(
                figures, 'summarise', return_value={'atc': entry.copy()}
            ),
            mock.patch.object(figures, 'overall', return_value={}),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            words = ('--mixes', 'alone', '--merge', '--json', str(path))
            self.assertEqual(0, cli.run(self.parse(*words)))
        document = json.loads(path.read_text())
        merged = document['mixes']['alone']
        self.assertEqual('yesterday', merged['stock']['when'])
        self.assertEqual(document['when'], merged['atc']['when'])

    def run_lab(self, mix_runs, *words):
        out, err = io.StringIO(), io.StringIO()
        with (
            no_guests(),
            mock.patch.object(runner, 'measure_mix', return_value=mix_runs),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = cli.run(self.parse(*words))
        return status, out.getvalue(), err.getvalue()

    def test_mix_whose_rounds_were_all_disturbed_has_no_figures(self):
        path = Path(self.useFixture(fixtures.TempDir()).path, 'lab.json')
        words = ('--mixes', 'hogs', '--json', str(path))
        disturbed = runner.MixRuns({'stock': []}, [0.8, 0.5], 0.1)
        status, out, err = self.run_lab(disturbed, *words)
        self.assertEqual(1, status)
        self.assertIn('2 of 2 rounds left out', out)
        self.assertIn('no figures for hogs', err)
        document = json.loads(path.read_text())
        entry = document['mixes']['hogs']['stock']
        self.assertEqual((0, 2), (entry['runs'], entry['left_out']))
        for figure in figures.FIGURES:
            self.assertIn(figure, entry)
        self.assertEqual([1, 2], document['rounds']['hogs']['left_out'])

    def test_earlier_figures_survive_a_run_without_undisturbed_rounds(self):
        path = Path(self.useFixture(fixtures.TempDir()).path, 'lab.json')
        entry = dict.fromkeys(figures.FIGURES, 0.5)
        path.write_text(json.dumps({'mixes': {'hogs': {'stock': entry}}}))
        disturbed = runner.MixRuns({'stock': []}, [0.8], 0.1)
        self.run_lab(
            disturbed, '--mixes', 'hogs', '--merge', '--json', str(path)
        )
        document = json.loads(path.read_text())
        self.assertEqual(entry, document['mixes']['hogs']['stock'])

    def test_all_measures_everything_often_enough_for_intervals(self):
        page = Path(self.useFixture(fixtures.TempDir()).path, 'claims.rst')
        progress = dict.fromkeys(
            (one.name for mix in mixes.MIXES.values() for one in mix.guests),
            0.5,
        )
        runs = [figures.Run(1, progress, cpus=progress)]
        measured = runner.MixRuns(
            {'stock': runs, 'default': runs}, [0.02], 0.1
        )
        with mock.patch.object(
            experiments, 'measure', return_value={}
        ) as measure_claims:
            words = ('--all', '--page', str(page))
            status, _, err = self.run_lab(measured, *words)
        self.assertEqual(0, status, err)
        self.assertEqual(9, measure_claims.call_args.args[2])
        text = page.read_text()
        for name in mixes.MIXES:
            self.assertIn(f'* {name}: 0 of 1 rounds left out', text)
        self.assertIn('hog, 4 vCPU', text)

    def assert_refused_at_once(self, words, *messages):
        with mock.patch.object(cli, '_two_cpus') as two_cpus:
            error = self.assertRaises(
                outputs.OutputError, cli.run, self.parse(*words)
            )
        two_cpus.assert_not_called()
        for message in messages:
            self.assertIn(message, str(error))

    def test_unwritable_directory_of_pictures_is_refused_at_once(self):
        with tempfile.TemporaryDirectory() as name:
            file = Path(name, 'file')
            file.touch()
            for path in (file, file / 'deeper' / 'plots'):
                self.assert_refused_at_once(
                    ('--plot', str(path)),
                    f'{path} cannot be written: {file} is not a directory',
                )
            with mock.patch.object(os, 'access', return_value=False):
                self.assert_refused_at_once(
                    ('--plot', str(Path(name, 'new'))),
                    f'no permission to make files in {name}',
                )
            self.assertEqual([file], list(Path(name).iterdir()))

    def test_merge_into_a_file_without_figures_is_refused_at_once(self):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, 'lab.json')
            for text in (
                '',
                '[]',
                '{}',
                '{"mixes": []}',
                '{"mixes": {"hogs": {"stock": {"speedup": 1.0}}}}',
            ):
                path.write_text(text)
                self.assert_refused_at_once(
                    ('--merge', '--json', str(path)),
                    f'{path} cannot be written: it holds no figures',
                    '--merge',
                )
                self.assertEqual(text, path.read_text())
