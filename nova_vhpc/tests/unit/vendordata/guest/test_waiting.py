# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-hosts env --wait`` and ``waited``, as guests run them."""

import json
import shlex
import subprocess

from nova_vhpc.flavor import extra_specs
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.tests.unit.vendordata.guest import program
from nova_vhpc.vendordata.guest import waiting

OWN = {
    'intel': ['I_MPI_WAIT_MODE', 'I_MPI_THREAD_YIELD'],
    'mpich': [],
    'openmpi': ['OMPI_MCA_mpi_yield_when_idle'],
    'slurm': ['I_MPI_WAIT_MODE', 'OMPI_MCA_mpi_yield_when_idle'],
}
LAUNCHERS = tuple(OWN)


def variables(launcher, text):
    """Return the variables that a launcher gives programs by its flags."""
    words = text.split()
    if launcher == 'slurm':
        (flag,) = words
        everything, *pairs = flag.partition('=')[2].split(',')
        assert everything == 'ALL', flag
        return dict(pair.split('=', 1) for pair in pairs)
    found = {}
    while words:
        flag, name, *words = words
        if flag == '-genv':
            value, *words = words
        elif flag == '-x':
            name, value = name.split('=', 1)
        elif flag == '--mca':
            name = f'OMPI_MCA_{name}'
            value, *words = words
        found[name] = value
    return found


class ModesTest(base.TestCase):
    def test_there_is_a_mode_for_each_value_of_the_flavor(self):
        self.assertEqual(extra_specs.WAIT_MODES, waiting.WAIT_MODES)

    def test_every_mode_sets_the_same_variables(self):
        """A variable of an earlier mode would stay in force in a shell."""
        for launcher in LAUNCHERS:
            names = {
                frozenset(
                    variables(
                        launcher,
                        ' '.join(waiting.WAIT_FLAGS[launcher](mode, {})),
                    )
                )
                for mode in waiting.WAIT_MODES
            }
            self.assertEqual(1, len(names), launcher)
        self.assertEqual(
            1,
            len(
                {
                    frozenset(waiting.wait_environment(mode))
                    for mode in waiting.WAIT_MODES
                }
            ),
        )


class EnvironmentTest(program.ProgramCase):
    def setUp(self):
        super().setUp()
        self.library = self.path / 'libvhpcwait.so'
        self.library.touch()

    def flavor(self, **flavor):
        """Write vendordata of a cluster whose flavor says how to wait."""
        cluster = fakes.cluster(
            [fakes.member(1, 'h1'), fakes.member(2, 'h2')], **flavor
        )
        self.write({'vhpc': fakes.answered(cluster, fakes.uuid(1))})

    def env(self, *argv, library=True, **env):
        """Return what ``env --wait`` prints, and what it says of it."""
        if library:
            argv += ('--library', str(self.library))
        status, out, err = self.run_(
            'env', '--file', str(self.file), '--wait', *argv, env=env
        )
        self.assertEqual(0, status, err)
        return out, err

    def evaluated(self, *texts, **env):
        """Return the variables of a shell that has evaluated texts."""
        commands = ''.join(f'eval {shlex.quote(text)}\n' for text in texts)
        # A shell of its own: the library here is an empty file.
        out = subprocess.run(
            ['sh', '-euc', commands + 'export -p'],
            env={'PATH': '/usr/bin:/bin', **env},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        found = {}
        for line in out.splitlines():
            (word,) = shlex.split(line)[1:]
            name, _equals, value = word.partition('=')
            found[name] = value
        return found

    def test_shell_waits_as_the_flavor_says(self):
        for mode in extra_specs.WAIT_MODES:
            self.flavor(wait=mode)
            out, err = self.env()
            self.assertEqual('', err)
            found = self.evaluated(out)
            self.assertEqual(mode, found['VHPC_WAIT'])
            self.assertEqual(
                'active' if mode == 'active' else 'passive',
                found['OMP_WAIT_POLICY'],
            )
            # A library that never naps is not worth loading.
            self.assertEqual(
                None if mode == 'active' else str(self.library),
                found.get('LD_PRELOAD'),
            )
            self.assertEqual('0', found['VHPC_RANK'])

    def test_tenant_overrides_the_flavor(self):
        self.flavor(wait='active')
        out, _err = self.env('passive')
        passive = self.evaluated(out)
        self.assertEqual(
            ('passive', '0', '0', '3'),
            tuple(
                passive[name]
                for name in (
                    'VHPC_WAIT',
                    'GOMP_SPINCOUNT',
                    'KMP_BLOCKTIME',
                    'I_MPI_THREAD_YIELD',
                )
            ),
        )
        # Nothing of an earlier mode is left.
        self.assertEqual(passive, self.evaluated(self.env('auto')[0], out))

    def test_launchers_give_programs_what_a_shell_would(self):
        for mode in extra_specs.WAIT_MODES:
            self.flavor(wait=mode, paradigm='hybrid')
            shell = self.evaluated(self.env()[0])
            for launcher in LAUNCHERS:
                out, _err = self.env('--launcher', launcher)
                found = variables(launcher, out)
                self.assertEqual(
                    {name: shell[name] for name in found}, found, launcher
                )
                self.assertLessEqual(
                    {
                        *('VHPC_WAIT', 'OMP_NUM_THREADS', 'KMP_BLOCKTIME'),
                        *OWN[launcher],
                    },
                    found.keys(),
                )
                # Those are of one member, not of all ranks.
                self.assertNotIn('VHPC_RANK', found)

    def test_flags_are_those_of_the_vendordata_and_the_library(self):
        self.flavor(wait='passive')
        answer = json.loads(self.file.read_text())['vhpc']
        for launcher in LAUNCHERS:
            out, _err = self.env('--launcher', launcher)
            found = variables(launcher, out)
            self.assertEqual(str(self.library), found.pop('LD_PRELOAD'))
            self.assertEqual(
                variables(launcher, ' '.join(answer['wait'][launcher])), found
            )

    def test_what_is_loaded_already_stays(self):
        for before in ('/lib/a.so:/lib/b.so', '/lib/a.so /lib/b.so'):
            for again in ('', f':{self.library}'):
                out, _err = self.env(LD_PRELOAD=before + again)
                self.assertIn(
                    f'LD_PRELOAD={self.library}:/lib/a.so:/lib/b.so\n', out
                )

    def test_guest_without_the_library_is_told(self):
        """The library must be on all members, or on none."""
        text = self.program.read_text()
        self.assertIn(waiting.LIBRARY, text)
        text = text.replace(waiting.LIBRARY, str(self.path / 'nowhere.so'))
        self.program.write_text(text)
        out, err = self.env(library=False)
        self.assertNotIn('LD_PRELOAD', out)
        self.assertIn('VHPC_WAIT=auto', out)
        self.assertIn('MPI calls spin as before', err)
        self.program.write_text(text.replace('nowhere.so', self.library.name))
        out, err = self.env(library=False)
        self.assertIn(f'LD_PRELOAD={self.library}\n', out)
        self.assertEqual('', err)

    def test_library_that_is_named_must_exist(self):
        self.assert_refused(
            *('env', '--wait', '--library', 'nowhere.so'),
            *('--file', str(self.file)),
            reason='there is no nowhere.so',
        )

    def test_waiting_needs_no_vendordata(self):
        self.write({})
        for argv, mode in (((), 'auto'), (('passive',), 'passive')):
            out, err = self.env(*argv)
            self.assertEqual(mode, self.evaluated(out)['VHPC_WAIT'])
            self.assertIn("no 'vhpc'", err)
        self.assert_refused(
            'env', '--file', str(self.file), reason="no 'vhpc'"
        )

    def test_vendordata_of_another_version_means_auto(self):
        answer = json.loads(self.file.read_text())['vhpc']
        for wait in ({'mode': 'doze'}, {}, None):
            answer.pop('wait', None)
            if wait is not None:
                answer['wait'] = wait
            self.write({'vhpc': answer})
            self.assertIn('VHPC_WAIT=auto\n', self.env()[0])

    def test_ranks_write_how_they_waited_if_the_shell_says_where(self):
        for launcher in LAUNCHERS:
            out, _err = self.env(
                '--launcher', launcher, VHPC_WAIT_STATS='/shared/wait.json'
            )
            self.assertEqual(
                '/shared/wait.json',
                variables(launcher, out)['VHPC_WAIT_STATS'],
            )

    def test_without_wait_it_is_as_before(self):
        for name in ('env', 'environment'):
            out, err = self.run_(name, '--file', str(self.file))[1:]
            self.assertEqual('', err)
            found = self.evaluated(out)
            self.assertEqual(
                ('yes', '2'), (found['VHPC_COMPLETE'], found['VHPC_MEMBERS'])
            )
            self.assertNotIn('VHPC_WAIT', found)


def counted(waits, nap_ms=0.0, taken=0, **more):
    """A line as a rank writes it."""
    return (
        json.dumps(
            {
                'pid': 7,
                'waits': waits,
                'naps': 3,
                'nap_ms': nap_ms,
                'taken': taken,
                **more,
            }
        )
        + '\n'
    )


class WaitedTest(program.ProgramCase):
    def waited(self, *lines, env=None):
        counts = self.path / 'wait.json'
        counts.write_text(''.join(lines))
        argv = ('waited',) if env else ('waited', '--file', str(counts))
        return self.run_(*argv, env=env)

    def test_ranks_are_summed_up_in_one_line(self):
        for lines, wanted in (
            (
                [
                    counted(800_000, 40.0, 300, ms=100.0),
                    counted(12_000, 48.0, 10, ms=100.0),
                    # mpirun itself does not wait by the library.
                    counted(0, ms=500.0),
                    '\n',
                ],
                '2 ranks: waited 812,000 calls, napped 44% of the time, CPU '
                'was taken 310 times\n',
            ),
            (
                [counted(5, 1234.5)],
                '1 rank: waited 5 calls, napped 1,234 ms, CPU was taken 0 '
                'times\n',
            ),
        ):
            self.assertEqual((0, wanted, ''), self.waited(*lines))

    def test_file_is_the_one_to_which_ranks_write(self):
        counts = self.path / 'wait.json'
        status, out, _err = self.waited(
            counted(5), env={'VHPC_WAIT_STATS': str(counts)}
        )
        self.assertEqual(0, status)
        self.assertIn('waited 5 calls', out)

    def test_what_cannot_be_summed_up_is_named(self):
        counts = self.path / 'wait.json'
        for text, reason in (
            ('', f'{counts}: no rank has waited'),
            (counted(5) + '{"waits": 3', f'{counts}: line 2 is not what'),
            ('[]\n', f'{counts}: line 1 is not what'),
            ('{"waits": {}}\n', f'{counts}: line 1 is not what'),
        ):
            counts.write_text(text)
            self.assert_refused('waited', '--file', str(counts), reason=reason)
        self.assert_refused('waited', reason='--file or VHPC_WAIT_STATS')
        self.assert_refused(
            'waited', '--file', '/nowhere', reason='/nowhere: No such file'
        )
