# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The program as guests get it: one file, run without this package."""

import ast
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading

from nova_vhpc.tests import base, served
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.tests.unit.vendordata.guest import program
from nova_vhpc.vendordata import live
from nova_vhpc.vendordata.guest import (
    launcher_files,
    report,
    script,
    topology_files,
)


class ScriptTest(base.TestCase):
    def test_it_is_python_3_6(self):
        tree = ast.parse(script.script(), feature_version=(3, 6))
        for node in ast.walk(tree):
            found = []
            if isinstance(node, ast.FunctionDef):
                found = [a.annotation for a in node.args.args]
                found.append(node.returns)
            for annotation in found:
                # Python 3.6 evaluates annotations; dict[str, str] and
                # "str | None" are errors there, texts are not.
                self.assertIsInstance(
                    annotation,
                    ast.Name | ast.Constant | ast.Attribute | None,
                    ast.unparse(node),
                )
            if isinstance(node, ast.ImportFrom | ast.Import):
                names = (
                    [node.module]
                    if isinstance(node, ast.ImportFrom)
                    else [one.name for one in node.names]
                )
                for name in names:
                    self.assertIn(
                        name.partition('.')[0], sys.stdlib_module_names
                    )

    def test_its_modules_have_no_name_in_common(self):
        tree = ast.parse(script.script())
        names = [
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
        names += [
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
        ]
        self.assertEqual(sorted(set(names)), sorted(names))


class ProgramTest(program.ProgramCase):
    def test_each_format_is_printed_from_a_config_drive(self):
        members = self.answer['members']
        for name, wanted in (
            ('report', report.report(self.answer)),
            *(
                (name, form(self.answer))
                for name, form in launcher_files.LAUNCHER_FORMATS.items()
            ),
            *(
                (name, form(members))
                for name, form in topology_files.TOPOLOGY_FORMATS.items()
            ),
        ):
            self.assertTrue(wanted)
            self.assertEqual(
                (0, wanted, ''), self.run_(name, '--file', str(self.file))
            )

    def test_metadata_service_is_asked(self):
        asked = []

        def metadata(environ, start_response):
            asked.append(environ['PATH_INFO'])
            start_response('200 OK', [])
            return [self.file.read_bytes()]

        url = self.useFixture(served.Served(metadata)).url
        status, out, err = self.run_('mpich', '--url', f'{url}vendor_data2')
        self.assertEqual((0, ''), (status, err))
        self.assertEqual(self.answer['hostfile']['mpich'], out)
        self.assertEqual(['/vendor_data2'], asked)

    def test_nodes_to_come_are_in_the_topology(self):
        argv = ('slurm-conf', '--file', str(self.file), '--nodes')
        _status, out, _err = self.run_(*argv, 'member-1,member-3')
        self.assertIn('SwitchName=unplaced Nodes=member-3\n', out)

    def test_nodes_that_no_scheduler_can_have_name_the_option(self):
        for nodes in ('n[1-8]', 'member-1,', 'a b'):
            self.assert_refused(
                *('slurm-conf', '--file', str(self.file), '--nodes', nodes),
                reason='--nodes',
            )

    def test_failure_is_one_line(self):
        odd = {**self.answer['members'][0], 'live': [1]}
        for value, reason in (
            ({'static': {}}, "no 'vhpc'"),
            ([], "no 'vhpc'"),
            ({'vhpc': {}}, 'in no virtual cluster'),
            ({'vhpc': {'members': [{}]}}, 'of another version'),
            ({'vhpc': []}, 'in no virtual cluster'),
            ({'vhpc': {**self.answer, 'members': [odd]}}, 'another version'),
        ):
            self.write(value)
            self.assert_refused('--file', str(self.file), reason=reason)
        for url, reason in (
            ('http://127.0.0.1:9/x', 'http://127.0.0.1:9/x: '),
            ('http://a host/x', 'http://a host/x: '),
            ('x', 'unknown url type'),
        ):
            self.assert_refused('--url', url, reason=reason)

    def test_what_is_no_json_is_named(self):
        for content in (b'<html>a proxy</html>', b'\xff', b'[' * 100_000, b''):
            self.file.write_bytes(content)
            self.assert_refused(
                '--file', str(self.file), reason=f'{self.file}: no JSON'
            )

    def test_service_that_does_not_speak_http_is_named(self):
        for content in (b'220 ready\r\n', b'HTTP/1.1 200 OK\r\nX: \x1b'):
            with socket.create_server(('127.0.0.1', 0)) as server:
                url = f'http://127.0.0.1:{server.getsockname()[1]}/'

                def answer_once(server=server, content=content):
                    connection, _address = server.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(content)

                thread = threading.Thread(target=answer_once)
                thread.start()
                self.assert_refused('--url', url, reason=url)
                thread.join()

    def test_cluster_without_addresses_has_no_hostfile(self):
        for member in self.answer['members']:
            member['address'] = None
        self.answer['hostfile'] = {'openmpi': '', 'mpich': ''}
        self.write({'vhpc': self.answer})
        for form in ('openmpi', 'mpich', 'prrte', 'rankfile'):
            self.assert_refused(
                form, '--file', str(self.file), reason='no member runs'
            )
        self.assertEqual(0, self.run_('--file', str(self.file))[0])

    def test_cluster_without_members_has_no_topology(self):
        self.write({'vhpc': {**self.answer, 'members': []}})
        for form in topology_files.TOPOLOGY_FORMATS:
            self.assert_refused(
                form, '--file', str(self.file), reason='no members'
            )

    def test_report_is_printed_where_the_terminal_lacks_letters(self):
        self.answer['members'][0]['name'] = 'w\u00e9\x1b[1m'
        self.write({'vhpc': self.answer})
        status, out, err = self.run_(
            *('--file', str(self.file)), env={'PYTHONIOENCODING': 'ascii'}
        )
        self.assertEqual((0, ''), (status, err))
        self.assertIn(' w??[1m ', out)

    def test_full_disk_is_one_line(self):
        with open('/dev/full', 'w') as full:
            status, _out, err = self.run_(
                'mpich', '--file', str(self.file), stdout=full
            )
        self.assertEqual(1, status)
        self.assertIn('No space left', err)
        self.assertEqual(1, err.count('\n'), err)

    def test_interrupt_while_it_waits_is_silent(self):
        fifo = self.path / 'fifo'
        os.mkfifo(fifo)
        argv = ('mpich', '--file', str(fifo), '--wait', '600')
        with (
            subprocess.Popen(
                # A shell has its background jobs ignore SIGINT.
                [
                    *('env', '--default-signal=INT', sys.executable),
                    *('-s', '-S', str(self.program), *argv),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process,
            # The program has opened the file once this returns.
            open(fifo, 'w'),
        ):
            process.send_signal(signal.SIGINT)
            out, _err = process.communicate()
        self.assertEqual((130, b''), (process.returncode, out))

    def test_wrong_arguments_are_named_with_what_is_allowed(self):
        for argument, reason in (
            ('--wait=-1', "--wait: '-1' is no number of seconds"),
            ('--wait', 'report --wait: give a number of seconds'),
            ('--launcher=mpich', 'for env --wait'),
            ('--wait=nan', "--wait: 'nan' is no number of seconds"),
            ('--wait=x', "--wait: 'x' is no number of seconds"),
            ('opnmpi', "'opnmpi' is no format: did you mean 'openmpi'?"),
            ('slurm', "'slurm' is no format: "),
            ('x', "'x' is no format: There are env, environment, kubernetes"),
            # An abbreviation could be another option's one day.
            ('--wai=1', 'unrecognized arguments: --wai=1'),
        ):
            status, _out, err = self.run_(argument)
            self.assertEqual(2, status)
            self.assertIn(reason, err)

    def test_topology_without_ids_is_refused(self):
        """Schedulers would take all members for near each other."""
        for member in self.answer['members']:
            member.update(dict.fromkeys(('host', 'switch', 'rack')))
        self.write({'vhpc': self.answer})
        for form in topology_files.TOPOLOGY_FORMATS:
            self.assert_refused(
                form, '--file', str(self.file), reason='ask the operator'
            )
        self.assertEqual(0, self.run_('mpich', '--file', str(self.file))[0])

    def test_wait_ends_when_the_cluster_is_complete(self):
        self.answer['cluster']['complete'] = False
        self.write({'vhpc': self.answer})
        argv = ('mpich', '--file', str(self.file), '--wait')
        status, _out, err = self.run_(*argv, '0.1')
        self.assertEqual(1, status)
        self.assertIn('not complete', err)
        self.answer['cluster']['complete'] = True
        self.write({'vhpc': self.answer})
        self.assertEqual(0, self.run_(*argv, '600')[0])


def answered(*members, **flavor):
    cluster = fakes.cluster(members, **flavor)
    return fakes.answered(cluster, fakes.uuid(1))


class LauncherFilesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.members = [fakes.member(1, 'h1'), fakes.member(2, 'h2')]

    def test_hostfiles_are_those_of_the_answer(self):
        found = answered(*self.members)
        for form, key in (
            ('mpich', 'mpich'),
            ('openmpi', 'openmpi'),
            ('prrte', 'openmpi'),
        ):
            self.assertEqual(
                found['hostfile'][key],
                launcher_files.LAUNCHER_FORMATS[form](found),
            )

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

    def test_environment_is_that_of_the_member(self):
        found = answered(*self.members, paradigm='hybrid')
        self.assertEqual(
            {
                'OMP_NUM_THREADS': '2',
                'VHPC_CLUSTER': fakes.GROUP,
                'VHPC_COMPLETE': 'yes',
                'VHPC_MEMBERS': '2',
                'VHPC_RANK': '0',
                'VHPC_SLOTS': '2',
            },
            launcher_files.environment(found),
        )


class ReportTest(base.TestCase):
    def test_report_says_what_is_missing(self):
        stopped = dataclasses.replace(
            fakes.member(2, None), running=False, status='SHUTOFF'
        )
        text = report.report(answered(fakes.member(1, 'h1'), stopped))
        self.assertIn('1 of 2 members are ready: NOT complete', text)
        self.assertRegex(text, r'0\*\s+member-1\s+10.1.0.1\s+2\s+ACTIVE')
        self.assertRegex(text, r'1\s+member-2\s+10.1.0.2\s+2\s+SHUTOFF')

    def test_report_says_why_a_member_is_slow(self):
        cluster = fakes.cluster([fakes.member(1, 'h1'), fakes.member(2, 'h2')])
        found = fakes.answered(
            cluster,
            fakes.uuid(1),
            {
                fakes.uuid(1): live.Live(
                    run_s=30.0,
                    held_up_s=10.0,
                    held_up_now=True,
                    never_sleeps=True,
                    in_windows_s=7.0,
                    overcommit=2.5,
                    problem=live.PAUSED,
                )
            },
        )
        text = report.report(found)
        self.assertRegex(text, r'member-1 .*  25% now\s+7 s\s+2.5\n')
        self.assertRegex(text, r'member-2 .*  \?\s+\?\s+\?\n')
        self.assertIn(f'member-1: {live.PAUSED}\n', text)
        self.assertIn('member-1: its vCPUs never sleep and are held up', text)
        self.assertEqual(1, text.count('never sleep'))

    def test_names_cannot_control_the_terminal(self):
        member = dataclasses.replace(fakes.member(1, 'h1'), name='\x1b[2Jx')
        self.assertNotIn('\x1b', report.report(answered(member)))
