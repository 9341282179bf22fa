# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Programs end with the exit codes that their man pages name."""

import contextlib
import io
import os
import pathlib
import re
import socket
import types
from typing import Any

import fixtures
from oslo_upgradecheck import upgradecheck
from oslotest import base

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.agent.rpc import control
from nova_vhpc.cli import (
    agent,
    ctl,
    explain,
    flavor,
    hook,
    launch,
    status,
    top,
    vendordata,
)
from nova_vhpc.clients import openstack

PAGES = pathlib.Path(__file__).parents[4] / 'doc/source/cli'
CODE = re.compile(r'^``(\d+)``$', re.MULTILINE)
MISSING = '/nonexistent/file'
EMPTY = ('--config-file', os.devnull)
OPEN = '[vhpc_vendordata]\nauth_strategy = noauth\nlisten_host = 127.0.0.1\n'


class ExitCodeTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        # It would redirect the log of all other tests.
        self.useFixture(fixtures.MockPatch('oslo_log.log.setup'))

    def replace(self, target: Any, name: str, **how: Any) -> None:
        """Replace what cannot run here."""
        self.useFixture(fixtures.MockPatchObject(target, name, **how))

    def file(self, text: str) -> tuple[str, str]:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'a.conf')
        path.write_text(text)
        return ('--config-file', str(path))

    def assert_code(self, code: int, program: Any, *argv: str) -> None:
        """Run a program that must end with a code that its page names."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                found = program.main(list(argv))
            except SystemExit as stop:
                found = stop.code
        self.assertEqual(code, found, err.getvalue())
        name = program.__name__.rpartition('.')[2]
        page = PAGES.joinpath(f'nova-vhpc-{name}.rst').read_text()
        self.assertIn(str(code), CODE.findall(page))

    def test_every_page_names_success_and_wrong_arguments(self) -> None:
        for program in launch.PROGRAMS:
            page = PAGES.joinpath(f'nova-vhpc-{program}.rst').read_text()
            codes = CODE.findall(page.partition('\nExit status\n')[2])
            self.assertEqual(sorted({*codes, '0', '2'}, key=int), codes)

    def test_agent(self) -> None:
        self.assert_code(2, agent, '--config-file', MISSING)
        self.assert_code(2, agent, '--nothing')
        for code in (0, 1):
            self.replace(agent, '_restore', return_value=code)
            self.assert_code(code, agent, *EMPTY, '--restore')
        self.replace(agent.withdraw, 'withdraw', return_value=130)
        self.assert_code(130, agent, *EMPTY, '--withdraw')

    def test_ctl(self) -> None:
        bus = self.file('[DEFAULT]\ntransport_url = fake:/\n')
        self.replace(
            control,
            'call_all',
            side_effect=[({}, {}), ({}, {'a': 'is away'})],
        )
        self.assert_code(0, ctl, *bus, 'status')
        self.assert_code(1, ctl, *bus, 'status')
        self.assert_code(2, ctl, *EMPTY, 'status')

    def test_explain(self) -> None:
        self.assert_code(1, explain, MISSING)
        self.assert_code(2, explain)
        for code, cpus in ((0, 1), (explain.NO_PLAN, 0)):
            _, path = self.file(
                '{"flavor": {"vcpus": 1, "ram_mb": 1}, "hosts": [{"name": '
                f'"c1", "cpus": {cpus}, "free_ram_mb": 1, "used_vcpus": 0'
                '}]}'
            )
            self.assert_code(code, explain, path, '--json')

    def test_flavor(self) -> None:
        self.assert_code(2, flavor)
        self.replace(openstack, 'connect')
        self.replace(
            openstack,
            'find_flavor',
            side_effect=[
                types.SimpleNamespace(name='a', extra_specs={}),
                types.SimpleNamespace(
                    name='a', extra_specs={'vhpc:workload': 'x'}
                ),
                openstack.CloudError('no such flavor'),
            ],
        )
        for code in (0, 1, 1):
            self.assert_code(code, flavor, 'show', 'a')

    def test_hook(self) -> None:
        self.assert_code(0, hook, 'a', 'start', 'begin', '-')
        self.assert_code(2, hook, 'a')

    def test_status(self) -> None:
        argv = (*EMPTY, 'upgrade', 'check')
        self.assert_code(2, status, '--config-file', MISSING, *argv)
        for code in (0, 1, 2, 255):
            self.replace(upgradecheck, 'run', return_value=code)
            self.assert_code(code, status, *argv)

    def test_top(self) -> None:
        self.assert_code(1, top, '--once', '--socket', MISSING)
        self.assert_code(2, top, '--nothing')
        self.replace(status_socket, 'fetch', return_value={})
        self.assert_code(0, top, '--once', '--json')

    def test_vendordata(self) -> None:
        self.assert_code(2, vendordata, '--config-file', MISSING)
        with socket.create_server(('127.0.0.1', 0)) as taken:
            port = taken.getsockname()[1]
            conf = self.file(f'{OPEN}listen_port = {port}\n')
            self.assert_code(1, vendordata, *conf)
        self.useFixture(
            fixtures.MockPatch(
                'socketserver.BaseServer.serve_forever',
                side_effect=KeyboardInterrupt,
            )
        )
        conf = self.file(f'{OPEN}listen_port = 0\n')
        self.assert_code(0, vendordata, *conf)
