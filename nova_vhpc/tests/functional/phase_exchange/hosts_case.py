# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Test case whose hosts tell what they did when a test fails."""

import contextlib
import json
import pathlib

from oslotest import base
from testtools import content

from nova_vhpc.tests.functional.phase_exchange.agent_host import Host


class HostsTestCase(base.BaseTestCase):
    """Starts hosts, which end with the test."""

    def host(self, name: str, root: pathlib.Path) -> Host:
        """Start a host's libvirtd.

        :param root: directory for those of all hosts.
        """
        host = Host(name, root)
        self.addCleanup(host.close)
        self.addOnException(lambda _: self._tell(host))
        return host

    def _tell(self, host: Host) -> None:
        with contextlib.suppress(OSError):
            self.addDetail(
                f'{host.name}.log', content.text_content(host.log.read_text())
            )
        self.addDetail(
            f'{host.name}.status',
            content.text_content(json.dumps(host.status(), indent=1)),
        )
