# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ways by which the waiting library comes into a guest."""

import base64
import io
import os
import pathlib
import re
import subprocess
import tarfile

import fixtures
import yaml

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import mpi_programs

GUEST = mpi_programs.GUEST
ELEMENT = GUEST / 'elements/vhpc-wait'
CHROOT_HOOKS = '/tmp/in_target.d'


class PackagesTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.root = self.folder / 'root'

    def run_tool(self, *words: object, **environment: object) -> str:
        added = {name: str(value) for name, value in environment.items()}
        return subprocess.run(
            [str(word) for word in words],
            env={**os.environ, **added},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def log_in(self, **environment: str) -> dict[str, str]:
        """Return the environment of a user who logs in to the image."""
        profile = self.root / 'etc/profile.d/nova-vhpc-wait.sh'
        script = profile.read_text().replace(
            '/usr/local', f'{self.root}/usr/local'
        )
        lines = self.run_tool(
            *('sh', '-c', f'{script}\nexport -p'), **environment
        )
        return dict(re.findall(r"^export (\w+)='(.*)'$", lines, re.MULTILINE))

    def assert_installed(self) -> None:
        self.assertTrue(
            (self.root / 'usr/local/lib/libvhpcyield.so').is_file()
        )
        library = self.root / 'usr/local/lib/libvhpcwait.so'
        usual = self.log_in()
        self.assertEqual(str(library), usual['LD_PRELOAD'])
        self.assertEqual('auto', usual['VHPC_WAIT'])
        self.assertEqual('10000', usual['GOMP_SPINCOUNT'])
        self.assertEqual('0', usual['KMP_BLOCKTIME'])
        # What a user says stays.
        own = self.log_in(VHPC_WAIT='active', OMP_WAIT_POLICY='active')
        self.assertEqual('active', own['VHPC_WAIT'])
        self.assertNotIn('KMP_BLOCKTIME', own)
        # A library that is missing must not be named by every program.
        library.unlink()
        self.assertNotIn('LD_PRELOAD', self.log_in())

    def test_cloud_init_builds_it_and_sets_the_environment(self) -> None:
        for mpi in mpi_programs.LAUNCHERS:
            with self.subTest(mpi=mpi):
                printed = self.run_tool(GUEST / 'cloud-init.sh', mpi)
                # Of 65535 bytes in base64, Nova's limit.
                self.assertLess(len(printed), 49151)
                self.assertTrue(printed.startswith('#cloud-config\n'))
                data = yaml.safe_load(printed)
                self.assertIn(f'lib{mpi}-dev', data['packages'])
                (archive,) = data['write_files']
                path = pathlib.Path(f'{self.root}{archive["path"]}')
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(archive['content']))
                for words in data['runcmd']:
                    self.run_tool(
                        *(
                            word.replace('/usr/local/src', str(path.parent))
                            for word in words
                        ),
                        DESTDIR=self.root,
                    )
                self.assert_installed()

    def test_cloud_init_names_the_mpi_libraries_there_are(self) -> None:
        found = subprocess.run(
            (GUEST / 'cloud-init.sh', 'lam'), capture_output=True, text=True
        )
        self.assertEqual(2, found.returncode)
        self.assertIn('openmpi and mpich', found.stderr)

    def test_image_element_builds_it_in_the_chroot(self) -> None:
        hooks = self.folder / 'hooks'
        self.run_tool(
            *('bash', '-c'),
            f'get_image_element_array() {{ echo "[vhpc-wait]={ELEMENT}"; }}; '
            f'export -f get_image_element_array; '
            f'exec {ELEMENT}/extra-data.d/50-vhpc-wait',
            TMP_HOOKS_PATH=hooks,
        )
        script = (ELEMENT / 'install.d/60-vhpc-wait').read_text()
        self.assertIn(CHROOT_HOOKS, script)
        self.run_tool(
            *('bash', '-c', script.replace(CHROOT_HOOKS, str(hooks))),
            DIB_VHPC_WAIT_MPI='openmpi',
            DESTDIR=self.root,
        )
        self.assert_installed()

    def test_archive_of_sources_builds_alone(self) -> None:
        source = self.folder / 'source'
        self.run_tool('cp', '-r', GUEST, source)
        self.run_tool('make', '-C', source, 'dist')
        archive = (source / 'nova-vhpc-wait.tar.gz').read_bytes()
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(self.folder / 'alone', filter='data')
        self.run_tool(
            *('make', '-C', self.folder / 'alone', 'MPICC=mpicc.mpich'),
            *('install', 'profile', f'DESTDIR={self.root}'),
        )
        self.assert_installed()

    def test_demo_prints_barriers_with_and_without(self) -> None:
        programs = mpi_programs.Programs.build(
            'mpich', self.folder / 'mpich', 'barriers.c'
        )
        programs.program('barriers.c').rename(programs.folder / 'barriers')
        lines = self.run_tool(
            *('sh', GUEST / 'demo.sh', programs.folder, '0.2'),
            MPIRUN='mpirun.mpich',
        ).splitlines()
        self.assertEqual(['1', '3'], [line.split()[0] for line in lines])
        for line in lines:
            rates = re.search(r'(\d+) barriers/s as shipped, (\d+) ', line)
            assert rates is not None
            self.assertGreater(min(map(int, rates.groups())), 0)
