# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import answer, live
from nova_vhpc.vendordata.guest import launcher_files


def answered(*members, **flavor):
    cluster = fakes.cluster(members, **flavor)
    return answer.answer(cluster, fakes.uuid(1))


class LauncherFilesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.members = [fakes.member(1, 'h1'), fakes.member(2, 'h2')]

    def test_hostfiles_are_those_of_the_answer(self):
        found = answered(*self.members)
        self.assertEqual(
            found['hostfile']['mpich'], launcher_files.mpich_hostfile(found)
        )
        for form in (
            launcher_files.openmpi_hostfile,
            launcher_files.prrte_hostfile,
        ):
            self.assertEqual(found['hostfile']['openmpi'], form(found))

    def test_rankfile_has_a_rank_for_each_vcpu(self):
        self.assertEqual(
            'rank 0=10.1.0.1 slot=0\n'
            'rank 1=10.1.0.1 slot=1\n'
            'rank 2=10.1.0.2 slot=0\n'
            'rank 3=10.1.0.2 slot=1\n',
            launcher_files.rankfile(answered(*self.members)),
        )

    def test_rank_with_threads_has_all_vcpus_of_its_member(self):
        self.assertEqual(
            'rank 0=10.1.0.1 slot=0-1\nrank 1=10.1.0.2 slot=0-1\n',
            launcher_files.rankfile(
                answered(*self.members, paradigm='hybrid')
            ),
        )

    def test_member_that_does_not_run_has_no_rank(self):
        stopped = dataclasses.replace(self.members[1], running=False)
        self.assertNotIn(
            '10.1.0.2',
            launcher_files.rankfile(answered(self.members[0], stopped)),
        )

    def test_environment_can_be_evaluated(self):
        text = launcher_files.environment(
            answered(*self.members, paradigm='hybrid')
        )
        self.assertIn('export OMP_NUM_THREADS=2\n', text)
        self.assertIn('export VHPC_RANK=0\n', text)
        self.assertIn('export VHPC_SLOTS=2\n', text)
        self.assertIn('export VHPC_COMPLETE=yes\n', text)


class ReportTest(base.TestCase):
    def test_report_says_what_is_missing(self):
        stopped = dataclasses.replace(
            fakes.member(2, None), running=False, status='SHUTOFF'
        )
        text = launcher_files.report(answered(fakes.member(1, 'h1'), stopped))
        self.assertIn('1 of 2 members are ready: NOT complete', text)
        self.assertRegex(text, r'0\*\s+member-1\s+10.1.0.1\s+2\s+ACTIVE')
        self.assertRegex(text, r'1\s+member-2\s+10.1.0.2\s+2\s+SHUTOFF')

    def test_report_says_why_a_member_is_slow(self):
        cluster = fakes.cluster([fakes.member(1, 'h1'), fakes.member(2, 'h2')])
        found = answer.answer(
            cluster,
            fakes.uuid(1),
            {
                fakes.uuid(1): live.Live(
                    run_s=30.0,
                    held_up_s=10.0,
                    in_windows_s=7.0,
                    overcommit=2.5,
                    problem=live.PAUSED,
                )
            },
        )
        text = launcher_files.report(found)
        self.assertRegex(text, r'member-1 .*  25%\s+7 s\s+2.5\n')
        self.assertRegex(text, r'member-2 .*  \?\s+\?\s+\?\n')
        self.assertIn(f'member-1: {live.PAUSED}\n', text)

    def test_names_cannot_control_the_terminal(self):
        member = dataclasses.replace(fakes.member(1, 'h1'), name='\x1b[2Jx')
        self.assertNotIn('\x1b', launcher_files.report(answered(member)))
