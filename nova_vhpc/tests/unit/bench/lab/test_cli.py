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


"""The lab's command line, what it starts, and what it reports."""

import contextlib
import errno
import importlib
import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import fixtures
import libvirt

from nova_vhpc.bench.common import outputs
from nova_vhpc.bench.lab import (
    cli,
    figures,
    guest_set,
    mixes,
    plot,
    policies,
    report,
    runner,
)
from nova_vhpc.testbed import (
    errors,
    guest,
    guest_kernel,
    image,
    libvirtd,
    toolchain,
)
from nova_vhpc.tests import base

IMAGE = image.GuestImage(Path('/kernel'), Path('/initrd'))


class TestMixes(base.TestCase):
    """What the lab starts."""

    def test_issue_mixes_are_there(self):
        for name in ('alone', 'clusters', 'hogs', 'web', 'phased'):
            self.assertIn(name, mixes.MIXES)

    def test_hogs_and_web_did_not_opt_in(self):
        for mix in mixes.MIXES.values():
            for one in mix.guests:
                self.assertEqual(one.parallel, one.extra_specs is not None)

    def test_overcommitted_means_more_vcpus_than_cpus(self):
        for mix in mixes.MIXES.values():
            vcpus = sum(one.vcpus for one in mix.guests)
            self.assertEqual(mix.overcommitted, vcpus > 2, mix.name)


class TestDomainXml(base.TestCase):
    """The domain as Nova would have described it."""

    def parse(self, **settings):
        return ElementTree.fromstring(
            guest.domain_xml('one', IMAGE, **settings)
        )

    def test_extra_specs_are_where_nova_puts_them(self):
        root = self.parse(extra_specs={'vhpc:workload': 'parallel'})
        ns = {'nova': guest.NOVA_NS}
        (spec,) = root.findall(
            'metadata/nova:instance/nova:flavor/nova:extraSpecs/'
            'nova:extraSpec',
            ns,
        )
        self.assertEqual('vhpc:workload', spec.get('name'))
        self.assertEqual('parallel', spec.text)

    def test_without_extra_specs_there_is_no_metadata(self):
        self.assertIsNone(self.parse().find('metadata'))

    def test_memory_is_shared_for_the_progress_page(self):
        root = self.parse()
        self.assertEqual(
            'memfd', root.find('memoryBacking/source').get('type')
        )
        self.assertEqual(
            'shared', root.find('memoryBacking/access').get('mode')
        )

    def test_arguments_reach_the_workload(self):
        line = self.parse(
            workload='allreduce', arguments={'rank': 1}
        ).findtext('os/cmdline')
        self.assertIn(' vhpc.workload=allreduce ', line)
        self.assertIn(' vhpc.rank=1', line)

    def test_unknown_workload(self):
        error = self.assertRaises(ValueError, self.parse, workload='x')
        self.assertIn('barrier', str(error))

    def test_one_nic_per_bridge(self):
        root = self.parse(bridges=('br0', 'br1'))
        self.assertEqual(
            ['br0', 'br1'],
            [
                nic.find('source').get('bridge')
                for nic in root.iter('interface')
            ],
        )


class TestCommandLine(base.TestCase):
    """Mixes, policies and options that do not exist."""

    def parse(self, *words):
        import argparse

        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        return parser.parse_args(list(words))

    def test_unknown_names_are_refused(self):
        self.assertRaises(SystemExit, self.parse, '--mixes', 'x')
        self.assertRaises(SystemExit, self.parse, '--policies', 'stock,x')

    def test_no_policies_are_refused(self):
        for nothing in ('', ','):
            self.assert_refused('name at least one', '--policies', nothing)
        self.assertEqual([], self.parse('--mixes', '').mixes)

    def test_counts_that_mean_nothing_are_refused(self):
        for words in (('-k', '0'), ('-k', '-1'), ('-m', '0')):
            self.assert_refused('is not a whole number from 1', *words)

    def test_options_that_no_agent_would_read_are_refused(self):
        self.assert_refused('POLICY:NAME=VALUE', '--option', 'nonsense')
        self.assert_refused('gang_widow_us', '--option', 'a:gang_widow_us=1')
        self.assert_refused("'x'", '--option', 'a:gang_window_us=x')
        self.assert_refused('no agent', '--option', 'stock:guard_margin=2')
        self.assert_refused('NAME=VALUE', '--option', ':guard_margin=2')

    def assert_refused(self, complaint, *words):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            error = self.assertRaises(SystemExit, self.parse, *words)
        self.assertEqual(2, error.code)
        self.assertIn(complaint, err.getvalue())

    def test_what_the_lab_needs_and_has_not_is_one_line(self):
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

    def test_who_may_not_set_it_up_waits_for_no_image(self):
        with (
            mock.patch.object(cli, '_two_cpus', return_value=(0, 1)),
            mock.patch.object(os, 'geteuid', return_value=1000),
            mock.patch.object(image, 'build_image') as built,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertEqual(1, cli.run(self.parse('--mixes', 'alone')))
        built.assert_not_called()
        self.assertIn('run as root', err.getvalue())

    def test_a_machine_without_libvirtd_virsh_or_qemu(self):
        there = Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('libvirtd', 'virsh', 'qemu-system-x86_64'):
            with (
                mock.patch.object(os, 'geteuid', return_value=0),
                mock.patch.dict(os.environ, {'PATH': str(there)}),
            ):
                error = self.assertRaises(
                    libvirtd.LibvirtdError, guest_set.check
                )
            self.assertIn(f'no {name} on this machine', str(error))
            self.assertIn('bindep.txt', str(error))
            (there / name).symlink_to('/bin/true')

    def test_why_libvirtd_does_not_start(self):
        # Its log goes with the lab.
        root = Path(self.useFixture(fixtures.TempDir()).path)
        (root / 'log').write_text('all is well\nno room left\n\n')
        error = self.assertRaises(
            libvirtd.LibvirtdError,
            libvirtd.wait_until_it_answers,
            'qemu:///system',
            root / 'socket',
            (root / 'log', root / 'out'),
            lambda: True,
        )
        self.assertEqual(
            f'libvirtd does not answer (it ended); {root}/log ends: all is '
            'well / no room left',
            str(error),
        )

    def test_no_room_for_what_libvirtd_writes(self):
        root = Path(self.useFixture(fixtures.TempDir()).path)
        usage = mock.Mock(free=20 << 10)
        with mock.patch.object(
            libvirtd.shutil, 'disk_usage', return_value=usage
        ):
            error = self.assertRaises(
                libvirtd.LibvirtdError,
                libvirtd.wait_until_it_answers,
                'qemu:///system',
                root / 'none' / 'socket',
                (),
                lambda: True,
            )
        self.assertIn(f'{root} has only 20 KiB', str(error))

    def test_no_room_for_its_configuration(self):
        root = Path(self.useFixture(fixtures.TempDir()).path)
        daemon = libvirtd.PrivateLibvirtd(root / 'lv', cache=root / 'cache')
        with (
            mock.patch.object(libvirtd, 'check'),
            mock.patch.object(os, 'geteuid', return_value=0),
            mock.patch.object(
                Path, 'write_text', side_effect=OSError(28, 'No space left')
            ),
        ):
            error = self.assertRaises(libvirtd.LibvirtdError, daemon.start)
        self.assertEqual(
            f'no libvirtd in {root}/lv: No space left', str(error)
        )

    def test_libvirtd_in_a_directory_with_blanks(self):
        # libvirt's list of logs and its URIs end at a blank.
        root = Path(self.useFixture(fixtures.TempDir()).path, 'a b')
        daemon = libvirtd.PrivateLibvirtd(root, cache=root / 'cache')
        with (
            mock.patch.object(libvirtd, 'check'),
            mock.patch.object(daemon, '_start_supervisor'),
            mock.patch.object(daemon, '_start_daemon'),
        ):
            daemon.start()
        conf = (root / 'libvirtd.conf').read_text()
        self.assertIn('log_outputs = "3:stderr"', conf)
        self.assertIn('/a%20b/sock/libvirt-sock', daemon.uri)

    def test_an_empty_or_relative_cache_home(self):
        # What libvirtd sees of it is a link below another directory.
        for given, wanted in (
            ('', Path('~/.cache').expanduser()),
            ('here', Path('here').absolute()),
        ):
            with mock.patch.dict(os.environ, {'XDG_CACHE_HOME': given}):
                self.assertEqual(
                    wanted / 'nova-vhpc' / 'libvirt',
                    libvirtd.PrivateLibvirtd(Path('/root')).cache,
                )

    def test_a_machine_without_ip(self):
        with (
            mock.patch.object(os, 'geteuid', return_value=0),
            mock.patch.object(libvirtd, 'check'),
            mock.patch.object(guest_set.shutil, 'which', return_value=None),
            mock.patch.object(guest_set.cpu_controller.CpuController, 'find'),
        ):
            guest_set.check([mixes.MIXES['hogs']])
            error = self.assertRaises(
                errors.LabError, guest_set.check, [mixes.MIXES['web']]
            )
        self.assertIn('iproute2', str(error))

    def test_no_place_for_the_image(self):
        with tempfile.NamedTemporaryFile() as file:
            error = self.assertRaises(
                errors.ImageError,
                image.build_image,
                Path(file.name, 'cache'),
            )
        self.assertIn('XDG_CACHE_HOME', str(error))

    def test_a_full_disk_while_the_image_is_built(self):
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

    def test_no_part_of_an_image_stays(self):
        cache = Path(self.useFixture(fixtures.TempDir()).path)
        tree = cache / 'kernel-6.12'
        (tree / 'modules').mkdir(parents=True)
        with (
            mock.patch.object(guest_kernel, 'fetch', return_value=tree),
            # As cpio does where there is no room.
            mock.patch.object(
                toolchain, 'need', return_value=shutil.which('false')
            ),
            mock.patch.object(toolchain, 'run_tool'),
        ):
            error = self.assertRaises(
                errors.ImageError, image.build_image, cache
            )
        self.assertIn('cpio failed', str(error))
        self.assertEqual(['kernel-6.12', 'lock'], sorted(os.listdir(cache)))

    def test_a_program_that_the_image_needs_and_is_not_there(self):
        with tempfile.TemporaryDirectory() as name:
            bin_ = Path(name, 'bin')
            bin_.mkdir()
            (bin_ / 'busybox').symlink_to('/bin/true')
            with (
                mock.patch.dict(os.environ, {'PATH': str(bin_)}),
                mock.patch.object(
                    guest_kernel, 'fetch', return_value=Path(name)
                ),
            ):
                error = self.assertRaises(
                    errors.ImageError, image.build_image, Path(name, 'cache')
                )
        self.assertIn('cpio is not installed', str(error))

    def test_programs_speak_english(self):
        # apt-cache says "Hängt ab von", too.
        with mock.patch.dict(os.environ, {'LC_ALL': 'de_DE.UTF-8'}):
            self.assertEqual('C\n', toolchain.run_tool('printenv', 'LC_ALL'))

    def test_a_program_that_does_not_end(self):
        with mock.patch.object(toolchain, 'TIMEOUT_S', 0.01):
            error = self.assertRaises(
                errors.ImageError, toolchain.run_tool, 'sleep', '60'
            )
        self.assertIn('sleep 60 has not ended', str(error))

    def test_added_policies(self):
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

    def test_a_full_disk_does_not_end_the_measuring(self):
        found = {'stock': {}}
        with (
            mock.patch.object(cli, '_two_cpus', return_value=(0, 1)),
            mock.patch.object(guest_set, 'check'),
            mock.patch.object(image, 'build_image'),
            mock.patch.object(runner, 'measure_mix') as measured,
            mock.patch.object(figures, 'summarise', return_value=found),
            mock.patch.object(figures, 'overall', return_value={}),
            mock.patch.object(report, 'print_tables') as printed,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertRaises(
                outputs.OutputError,
                cli.run,
                self.parse('--mixes', 'alone,hogs', '--json', '/dev/full'),
            )
        self.assertEqual(2, measured.call_count)
        self.assertEqual(2, err.getvalue().count('will retry at the end'))
        self.assertEqual(
            {'alone', 'hogs'}, printed.call_args.args[0]['mixes'].keys()
        )

    def test_what_is_merged_says_when_it_was_measured(self):
        def stands():
            return dict.fromkeys(report.FIGURES, 1.0)

        path = Path(self.useFixture(fixtures.TempDir()).path, 'lab.json')
        kept = {'stock': {**stands(), 'when': 'yesterday'}}
        path.write_text(json.dumps({'mixes': {'alone': kept}}))
        with (
            mock.patch.object(cli, '_two_cpus', return_value=(0, 1)),
            mock.patch.object(guest_set, 'check'),
            mock.patch.object(image, 'build_image'),
            mock.patch.object(runner, 'measure_mix'),
            mock.patch.object(
                figures, 'summarise', return_value={'atc': stands()}
            ),
            mock.patch.object(figures, 'overall', return_value={}),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            words = ('--mixes', 'alone', '--merge', '--json', str(path))
            self.assertEqual(0, cli.run(self.parse(*words)))
        document = json.loads(path.read_text())
        found = document['mixes']['alone']
        self.assertEqual('yesterday', found['stock']['when'])
        self.assertEqual(document['when'], found['atc']['when'])

    def assert_refused_at_once(self, words, *telling):
        with mock.patch.object(cli, '_two_cpus') as began:
            error = self.assertRaises(
                outputs.OutputError, cli.run, self.parse(*words)
            )
        began.assert_not_called()
        for word in telling:
            self.assertIn(word, str(error))

    def test_pictures_that_cannot_be_written(self):
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

    def test_pictures_without_matplotlib(self):
        with mock.patch.object(
            importlib, 'import_module', side_effect=ImportError
        ):
            self.assert_refused_at_once(
                ('--plot', 'plots'), "pip install 'nova-vhpc[plot]'"
            )

    def test_nothing_to_merge_with(self):
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

    def test_tables_fit_eighty_columns(self):
        figures = {
            'efficiency': 0.9,
            'fairness': 0.9,
            'speedup': 1234.56,
            'loss': -0.123,
            'latency_ms': {'median': 123.4, 'p99': 567.8},
            'window_late_us': 23_400,
            'runs': 100,
        }
        names = ('default', 'vslicer')
        with (
            mock.patch.dict(os.environ, COLUMNS='80'),
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            report.print_tables(
                {'mixes': {'web': dict.fromkeys(names, figures)}}
            )
        text = out.getvalue()
        self.assertNotIn('…', text)
        for word in (*names, 'efficiency', '1234.56', '-12.3%', '567.8'):
            self.assertIn(word, text)

    def draw(self, document):
        """Draw; the legend and what the axes show, by file."""
        from matplotlib import figure

        seen = {}

        def look(picture, path, **words):
            picture.draw_without_rendering()
            axes = picture.axes[0]
            seen[path.name] = (
                picture.legends[0].get_window_extent(),
                axes.get_window_extent().frozen(),
                [bar.get_y() + bar.get_height() for bar in axes.patches],
                axes.get_ylim(),
            )

        with (
            tempfile.TemporaryDirectory() as name,
            mock.patch.object(figure.Figure, 'savefig', look),
        ):
            plot.draw(document, Path(name))
        return seen

    def test_the_legend_hides_no_bar(self):
        figures = {'speedup': 2.0, 'efficiency': 0.9, 'fairness': 0.9}
        by_policy = dict.fromkeys(policies.POLICIES, figures)
        document = {'mixes': dict.fromkeys(mixes.MIXES, by_policy)}
        seen = self.draw(document)
        self.assertEqual(3, len(seen))
        for name, (legend, axes, _, _) in seen.items():
            with self.subTest(name):
                self.assertFalse(legend.overlaps(axes))

    def test_execution_times_stand_on_that_of_stock(self):
        figures = {'efficiency': 0.9, 'fairness': 0.9}
        document = {
            'mixes': {
                'clusters': {
                    'stock': {**figures, 'speedup': 1.0},
                    'default': {**figures, 'speedup': 1.25},
                }
            }
        }
        _, _, ends, shown = self.draw(document)['lab-time.svg']
        self.assertEqual([1.0, 0.8], ends)
        self.assertEqual((0.5, 2.0), shown)

    def test_plots_are_written(self):
        document = {
            'mixes': {
                'clusters': {
                    'stock': {
                        'speedup': 1.0,
                        'efficiency': 0.1,
                        'fairness': 0.2,
                    }
                }
            }
        }
        with tempfile.TemporaryDirectory() as name:
            for path in plot.draw(document, Path(name)):
                self.assertIn('<svg', path.read_text())
            self.assertEqual(document, json.loads(json.dumps(document)))
