# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""One virtual cluster on two hosts, in slots that two real agents agree on.

Each host is a CPU of this machine, with a libvirtd, a member of one vCPU, and
a server beside it that did not opt in. All guests are busy all the time. The
agents are real processes that agree over a real RabbitMQ.
"""

import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.control.slots import frame
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.functional import rabbitmq
from nova_vhpc.tests.functional.phase_exchange import hosts_case
from nova_vhpc.tests.functional.phase_exchange.agent_host import Host
from nova_vhpc_lab.testbed import spinner
from nova_vhpc_lab.testbed.patience import PATIENCE_S

CLUSTER = 'spanning'
MEMBER = {'vhpc:workload': 'parallel', 'vhpc:cluster': CLUSTER}
SAMPLES = 400
SAMPLE_S = 0.01


class SlotsOfTwoAgentsTest(hosts_case.HostsTestCase):
    def setUp(self) -> None:
        super().setUp()
        libvirt.registerErrorHandler(lambda context, error: None, None)
        usable = sorted(os.sched_getaffinity(0))
        self.assertGreater(len(usable), 1, 'two hosts need two CPUs')
        # Outside of the test's directory, because socket paths must be short.
        root = pathlib.Path(tempfile.mkdtemp(prefix='nv-sl-', dir='/tmp'))
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        self.url = self.useFixture(rabbitmq.VirtualHostFixture()).url
        kernel = spinner.build(root)
        self.hosts = [self.host(f'slots-{name}', root) for name in 'ab']
        self.members = []
        for host, cpu in zip(self.hosts, usable, strict=False):
            how = {'kernel': kernel, 'cpuset': str(cpu)}
            self.members.append(host.start_guest('member', MEMBER, **how))
            host.start_guest('server', {}, **how)
            host.start_agent(
                self.url,
                vhpc_agent={'cpu_shared_set': cpu},
                vhpc_control={
                    'slice_policy': 'gang',
                    'pinning_policy': 'none',
                },
            )

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end_s:
                self.fail(f'timeout while waiting for {what}')
            time.sleep(0.1)

    def slots(self) -> list[dict[str, Any] | None]:
        """Return the cluster's slots on each host; None for none."""
        found = []
        for host in self.hosts:
            slots = host.status()['peers'].get('slots') or {}
            cluster = slots.get('clusters', {}).get(CLUSTER) or {}
            found.append(cluster.get('slot'))
        return found

    def favoured(self, host: Host, member: libvirt.virDomain) -> set[int]:
        """Return the slots of the frame that begin with the member's turn."""
        windows = host.status().get('windows') or {}
        begins_us, found = 0, set()
        turns = windows.get('turns', [])
        slot_us = sum(turn['width_us'] for turn in turns) // frame.SLOTS
        for turn in turns:
            if member.UUIDString() in turn['favoured']:
                found |= {
                    at_us // slot_us
                    for at_us in range(
                        begins_us, begins_us + turn['width_us'], slot_us
                    )
                    if at_us % slot_us == 0
                }
            begins_us += turn['width_us']
        return found if windows.get('playing') else set()

    def in_agreed_slots(self) -> bool:
        """Return whether both hosts favour the member in equal slots."""
        here, there = self.slots()
        if here is None or here != there:
            return False
        agreed = set(here['slots'])
        return all(
            agreed <= self.favoured(host, member)
            for host, member in zip(self.hosts, self.members, strict=True)
        )

    def together(self) -> float:
        """Return how well the members' CPU times go together, -1 to 1."""
        found = qemu_process.Processes()
        files = [
            pathlib.Path(f'/proc/{pid}/task/{tid}/schedstat')
            for pid in (
                found.find(member.UUIDString()) for member in self.members
            )
            for tid in found.vcpu_threads(pid, range(1))
        ]
        before = [self.run_ns(file) for file in files]
        columns: tuple[list[int], list[int]] = ([], [])
        for _ in range(SAMPLES):
            time.sleep(SAMPLE_S)
            now = [self.run_ns(file) for file in files]
            for column, value, last in zip(columns, now, before, strict=True):
                column.append(value - last)
            before = now
        return statistics.correlation(*columns)

    @staticmethod
    def run_ns(file: pathlib.Path) -> int:
        return int(file.read_text().split()[0])

    def test_lone_members_of_a_cluster_are_favoured_at_the_same_time(
        self,
    ) -> None:
        self.wait_for(self.in_agreed_slots, 'windows in agreed slots')
        # On a busy machine this says nothing of the windows.
        print(f'CPU times of both members correlate by {self.together():.2f}')
        for host in self.hosts:
            self.assertNotIn('Traceback', host.log.read_text())
        # The one that is left has nobody to run together with.
        agent = self.hosts[1].agent
        assert agent is not None
        agent.terminate()
        self.assertEqual(0, agent.wait(PATIENCE_S))
        self.wait_for(
            lambda: not self.favoured(self.hosts[0], self.members[0]),
            'the end of windows',
        )
