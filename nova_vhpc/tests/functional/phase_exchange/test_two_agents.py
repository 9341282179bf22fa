# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""One virtual cluster on two hosts, moved by two real agents.

Each host is a libvirtd with its own guests on this machine; the agents are
real processes that exchange phases over a real RabbitMQ.
"""

import contextlib
import io
import json
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable

import libvirt

from nova_vhpc.cli import ctl
from nova_vhpc.tests.functional import rabbitmq
from nova_vhpc.tests.functional.phase_exchange import bridges, hosts_case
from nova_vhpc.tests.functional.phase_exchange.agent_host import LEASE_S, Host
from nova_vhpc_lab.testbed.image import build_image
from nova_vhpc_lab.testbed.patience import PATIENCE_S

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
CLUSTER = 'spanning'
MEMBER = {'vhpc:workload': 'parallel', 'vhpc:cluster': CLUSTER}
PLAIN = {'vhpc:workload': 'parallel'}
MOVES = 12


def pins(domain: libvirt.virDomain) -> set[int]:
    """Return the host CPUs that libvirt allows to the only vCPU."""
    (usable,) = domain.vcpuPinInfo(LIVE)
    return {cpu for cpu, may in enumerate(usable) if may}


class TwoAgentsTest(hosts_case.HostsTestCase):
    """Only the member on host A receives packets."""

    def setUp(self) -> None:
        super().setUp()
        libvirt.registerErrorHandler(lambda context, error: None, None)
        usable = sorted(os.sched_getaffinity(0))
        self.assertGreater(len(usable), 1, 'two pools need two CPUs')
        self.io_cpu = usable[-1]
        self.computing = set(usable[:-1])
        # Outside of the test's directory, because socket paths must be short.
        root = pathlib.Path(tempfile.mkdtemp(prefix='nv-ta-', dir='/tmp'))
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        self.url = self.useFixture(rabbitmq.VirtualHostFixture()).url
        self.wires = bridges.Bridges(f't{os.getpid() % 1_000_000}', 1)
        self.addCleanup(self.wires.remove)
        self.wires.make()
        self.a = self.host('two-a', root)
        self.b = self.host('two-b', root)
        self.console = root / 'console'
        self.on_a = self.a.start_guest(
            'member',
            MEMBER,
            image=build_image(),
            bridges=self.wires.names,
            console=self.console,
        )
        self.on_b = self.b.start_guest('member', MEMBER)
        self.plain = self.b.start_guest('plain', PLAIN)

    def wait_for(self, condition: Callable[[], object], what: str) -> float:
        """Wait until a condition is true; return how long, in seconds."""
        begin = time.monotonic()
        while time.monotonic() - begin < PATIENCE_S:
            if condition():
                return time.monotonic() - begin
            time.sleep(0.05)
        self.fail(f'timeout while waiting for {what}')

    def wait_for_phase(self, phase: str, *hosts: Host) -> float:
        """Wait until members are in a phase by status and by their pins."""
        members = {self.a: self.on_a, self.b: self.on_b}
        allowed = {self.io_cpu} if phase == 'io' else self.computing
        return max(
            self.wait_for(
                lambda host=host: (
                    host.vm(members[host]).get('phase') == phase
                    and pins(members[host]) <= allowed
                ),
                f'phase {phase} on {host.name}',
            )
            for host in hosts
        )

    def test_members_on_both_hosts_change_pools_together(self) -> None:
        for host in (self.a, self.b):
            host.start_agent(
                self.url,
                vhpc_control={
                    'slice_policy': 'none',
                    'pinning_policy': 'io_pool',
                    'io_pool_cpus': self.io_cpu,
                    'pool_shrink_periods': 1000000,
                    'io_floor_events': 20,
                    'otsu_renewal': 10,
                    'otsu_history': 5000,
                },
            )
        self.wait_for(
            lambda: all(
                host.status()['peers'].get('listening') == [CLUSTER]
                for host in (self.a, self.b)
            ),
            'both agents to hear of the cluster',
        )
        self.wait_for(
            lambda: (
                self.console.exists()
                and 'vhpc: up' in self.console.read_text(errors='replace')
            ),
            'the guest of host A to boot',
        )
        self.check_each_agent_manages_its_own_guests()
        # Until the first I/O phase all CPUs are lent to the computing pool,
        # so pins tell the phase only from then on.
        self.wait_for(
            lambda: (
                self.a.vm(self.on_a).get('phase')
                == self.b.vm(self.on_b).get('phase')
                == 'computing'
            ),
            'the computing phase before any I/O',
        )
        cable = self.wires.cables[0]
        with bridges.traffic(cable):
            self.wait_for_phase('io', self.a, self.b)
            self.check_only_members_move()
            self.check_ctl()
        self.wait_for_phase('computing', self.a, self.b)
        self.check_how_soon(cable)
        with bridges.traffic(cable):
            self.wait_for_phase('io', self.a, self.b)
            agent = self.a.agent
            assert agent is not None
            agent.kill()
            agent.wait()
            # The killed agent A withdraws nothing, so its lease must end.
            took_s = self.wait_for_phase('computing', self.b)
        print(f'host B returned {took_s:.1f} s after the end of agent A')
        self.assertEqual({self.io_cpu}, pins(self.on_a))
        self.assertNotIn('Traceback', self.b.log.read_text())

    def check_how_soon(self, cable: str) -> None:
        """Measure the time between A's pins and B's, as libvirt has them.

        It contains A's message, the wait for B's next tick, B's decision and
        B's write, for moves into the I/O pool and back.
        """
        lags_ms = []
        for _ in range(MOVES // 2):
            with bridges.traffic(cable):
                lags_ms.append(self.lag_ms({self.io_cpu}))
            lags_ms.append(self.lag_ms(self.computing))
        print(
            f'{MOVES} moves: pins on host B written '
            f'{statistics.median(lags_ms):.0f} ms after those on host A '
            f'(median; {min(lags_ms):.0f} to {max(lags_ms):.0f} ms)'
        )
        # The lag is a message's, not the expiry of a lease.
        self.assertLess(statistics.median(lags_ms), LEASE_S * 1000 / 3)

    def lag_ms(self, allowed: set[int]) -> float:
        """Wait until both members are pinned; return B's lag behind A in ms.

        :param allowed: CPUs of the pool that both members move to.
        """
        at_ms: dict[str, float] = {}
        end = time.monotonic() + PATIENCE_S
        while len(at_ms) < 2:
            self.assertLess(time.monotonic(), end, f'both pinned to {allowed}')
            for name, domain in (('a', self.on_a), ('b', self.on_b)):
                if name not in at_ms and pins(domain) <= allowed:
                    at_ms[name] = time.monotonic() * 1000
            time.sleep(0.002)
        return at_ms['b'] - at_ms['a']

    def check_each_agent_manages_its_own_guests(self) -> None:
        """Each agent's status has the guests of its host only."""
        for host, domains in (
            (self.a, [self.on_a]),
            (self.b, [self.on_b, self.plain]),
        ):
            self.wait_for(
                lambda host=host, domains=domains: (
                    {vm['uuid'] for vm in host.status()['vms']}
                    == {domain.UUIDString() for domain in domains}
                ),
                f'the guests of {host.name}',
            )

    def check_only_members_move(self) -> None:
        """B's member moves without I/O of its own; the plain guest stays."""
        exchanged = self.b.status()['peers']['clusters'][CLUSTER]
        self.assertEqual('computing', exchanged['own'])
        self.assertEqual('computing', self.b.vm(self.plain)['phase'])
        self.assertLessEqual(pins(self.plain), self.computing)

    def check_ctl(self) -> None:
        """One call of ``nova-vhpc-ctl`` reaches both agents."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = ctl.main(
                [
                    *('--config-file', str(self.a.config)),
                    *('--timeout', '30', '--json', 'status'),
                    *('--host', self.a.name, '--host', self.b.name),
                ]
            )
        self.assertEqual(0, code)
        answers = json.loads(out.getvalue())
        for host, domain in ((self.a, self.on_a), (self.b, self.on_b)):
            self.assertIn(
                domain.UUIDString(),
                [vm['uuid'] for vm in answers[host.name]['vms']],
            )
