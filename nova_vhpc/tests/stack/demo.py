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


"""The demo, which ``tools/demo.sh`` runs: the main job once, on real parts.

Each ``step_`` method is one of the numbered steps of "the main job" in
doc/source/quickstart.rst. It prints what happened, and raises if something
else should have happened.
"""

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from typing import Any

from nova_vhpc.tests.stack import (
    client,
    guard,
    guests,
    realhosts,
    scenario,
    show,
)
from nova_vhpc.topology import model

ROW_S = 2
TIMELINE_ROWS = 14
TRAFFIC_ROWS = range(3, 10)
"""Rows of the timeline during which one member receives packets."""
PACKETS = 20
"""Packets that one member sends to another, which answers each."""


class DemoError(Exception):
    """A step had a wrong result."""


class Demo:
    """The demo and its state between the steps.

    :ivar members: IDs of the members of the virtual cluster.
    :ivar plain: ID of the server without ``vhpc:`` specs.
    :ivar names: names of all servers, by ID.
    :ivar before: CPU settings before the agents' first write, by ID.
    :ivar ports: ``external_ids`` of the members' ports before it, by ID.
    :ivar together: two members of one host.
    :ivar apart: two members of two hosts.
    :ivar log: daemon whose log is shown if the current step fails.
    :ivar saw_io_phase: whether the timeline had an I/O phase.
    """

    def __init__(self) -> None:
        self.show = show.Show()
        self.stage = scenario.Scenario(self.show.say)
        self.members: list[str] = []
        self.plain = ''
        self.names: dict[str, str] = {}
        self.before: dict[str, guests.Cputune] = {}
        self.ports: dict[str, dict[str, str]] = {}
        self.together: tuple[str, str] = ('', '')
        self.apart: tuple[str, str] = ('', '')
        self.log: guard.Daemon | None = None
        self.saw_io_phase = False

    def run(self) -> None:
        """Run all steps."""
        self.step_0_start()
        self.step_1_uplinks()
        self.step_2_flavor()
        self.step_3_boot()
        self.step_4_progress()
        self.step_5_control()
        self.step_6_restore()
        self.step_7_clean_up()

    def step_0_start(self) -> None:
        """Start the cloud."""
        self.show.heading('0. Start an OpenStack of released parts')
        self.show.say(f'all files are in {self.stage.cloud.root}')
        with self.show.waiting('database, bus, OVN, Neutron, libvirt, Nova'):
            self.stage.start()
        services = self.stage.admin.compute('GET', '/os-services')['services']
        self.show.table(
            'Nova services',
            ('service', 'host', 'state'),
            [(s['binary'], s['host'], s['state']) for s in services],
        )

    def step_1_uplinks(self) -> None:
        """Have the agents publish the uplinks."""
        self.show.heading(
            '1. nova-vhpc-agent discovers and publishes the uplinks of OVN'
        )
        self.stage.write_agent_conf(
            slice_policy='atc',
            pinning_policy='io_pool',
            # The I/O pool's CPUs are lent 2 s after its last VM has left.
            pool_shrink_periods=20,
        )
        self._start_agents()
        expected = {
            (each.name, f'n{rail}')
            for each in self.stage.hosts
            for rail in range(realhosts.UPLINKS)
        }
        with self.show.waiting('uplinks in Placement'):
            self.stage.wait(
                'uplinks in Placement',
                self.stage.has_published,
            )
        rows = []
        for node in self._nodes():
            for provider in sorted(
                self.stage.published(node), key=lambda p: p['name']
            ):
                _, _, bridge, nic = provider['name'].split(':')
                inventories = provider['inventories']
                rows.append(
                    (
                        node,
                        bridge,
                        nic,
                        inventories[model.MBPS]['total'],
                        inventories[model.UPLINK]['total'],
                        provider['usages'].get(model.UPLINK, 0),
                        ' '.join(
                            sorted(
                                t.removeprefix('CUSTOM_VHPC_')
                                for t in provider['traits']
                            )
                        ),
                    )
                )
        self.show.table(
            'Uplinks published, read back from Placement',
            ('host', 'bridge', 'uplink', 'Mbit/s', 'slots', 'used', 'traits'),
            rows,
        )
        found = {row[:3:2] for row in rows if row[0] != scenario.SLOW_HOST}
        if found != expected:
            raise DemoError(f'{found} were published, not {expected}')
        # The uplinks stay published. The dry run, which would not publish
        # them, lets the guests run with Nova's settings at first.
        self.stage.stop_agents()
        self._start_agents('--dry-run')

    def _start_agents(self, *options: str) -> None:
        self.stage.start_agents(*options)
        self.log = self.stage.hosts[0].agent

    def _nodes(self) -> list[str]:
        """Return the names of all compute nodes."""
        return [*(each.name for each in self.stage.hosts), scenario.SLOW_HOST]

    def step_2_flavor(self) -> None:
        """Create flavors; have Nova refuse wrong extra specs."""
        self.show.heading('2. A flavor, through the real Nova API')
        admin = self.stage.admin
        admin.make_flavor('vhpc', scenario.FLAVOR)
        admin.make_flavor('plain', scenario.PLAIN_FLAVOR)
        response = admin.compute('GET', '/flavors/vhpc/os-extra_specs')
        self.show.table(
            'Flavor vhpc',
            ('extra spec', 'value'),
            sorted(response['extra_specs'].items()),
        )
        rows = []
        for key, value in (
            ('vhpc:wrkload', 'parallel'),
            ('vhpc:workload', 'fast'),
        ):
            try:
                admin.set_extra_specs('plain', {key: value})
            except client.ApiError as error:
                rows.append((key, value, error.status, error.message))
                if error.status != 400 or key not in error.message:
                    raise DemoError(f'{error} does not name {key}') from None
            else:
                raise DemoError(f'Nova accepted {key}={value}')
        self.show.table(
            'Refused', ('key', 'value', 'status', "Nova's answer"), rows
        )

    def step_3_boot(self) -> None:
        """Boot a virtual cluster and a server without ``vhpc:`` specs."""
        self.show.heading(
            '3. A virtual cluster of three: one group, one multi-create'
        )
        tenant, admin = self.stage.tenant, self.stage.admin
        group = tenant.make_group('cluster', 'soft-affinity')
        self.log = self.stage.cloud.daemon('nova-scheduler')
        with self.show.waiting('the members and a server without vhpc: specs'):
            members = self.stage.boot_cluster('member', group)
            others = tenant.boot('plain', 'plain', self.stage.images['hog'])
            self.members = [server['id'] for server in members]
            self.plain = others[0]['id']
            self.names = {
                s['id']: s['name']
                for s in sorted(members + others, key=lambda s: s['name'])
            }
            tenant.wait_active(self.names)
        providers = {p['uuid']: p['name'] for p in admin.providers()}
        rows, uplinks = [], []
        for uuid in self.names:
            server = admin.server(uuid)
            host = server['OS-EXT-SRV-ATTR:host']
            allocations = admin.allocations(uuid)
            claims = [
                providers[p]
                for p, r in allocations.items()
                if model.UPLINK in r
            ]
            uplinks += claims
            rows.append(
                (
                    server['name'],
                    server['status'],
                    host,
                    '\n'.join(
                        f'{providers[p]}: '
                        + ' '.join(f'{k}={v}' for k, v in r.items())
                        for p, r in allocations.items()
                    ),
                )
            )
        self.show.table(
            'Host and allocations of each server',
            ('server', 'status', 'host', 'allocations'),
            rows,
        )
        self._show_reasons()
        if not len(set(uplinks)) == len(uplinks) == len(self.members):
            raise DemoError(f'not one uplink per member: {uplinks}')
        self._pair()

    def _pair(self) -> None:
        """Choose two members of one host, and two of two hosts."""
        by_host: dict[str, list[str]] = {}
        for uuid in self.members:
            by_host.setdefault(self.stage.host_of(uuid).name, []).append(uuid)
        few, many = sorted(by_host.values(), key=len)
        self.together = (many[0], many[1])
        # The uplinks of these two are not the default ones, if possible.
        self.apart = (
            max(many, key=self.stage.claimed_rail),
            few[0],
        )

    def _show_reasons(self) -> None:
        text = self.stage.cloud.daemon('nova-scheduler').tail(2000)
        rejected = sorted(
            set(
                re.findall(
                    r'Host (\S+) cannot take a member of this virtual '
                    r'cluster: (.*)',
                    text,
                )
            )
        )
        plans = re.findall(r'Plan for \d+ member\(s\): .*', text)
        self.show.table(
            'Hosts that the filter rejected', ('host', 'reason'), rejected
        )
        for plan in plans[:1]:
            self.show.say(f'the planner: {plan}')
        if scenario.SLOW_HOST not in {host for host, _ in rejected}:
            raise DemoError(f'{scenario.SLOW_HOST} was not rejected')

    def step_4_progress(self) -> None:
        """Wait until all guests make progress."""
        self.show.heading('4. Real QEMU guests run')
        with self.show.waiting('progress of the guests on their consoles'):
            self.stage.wait(
                'progress on all consoles',
                lambda: all(self._progress(uuid) for uuid in self.names),
                scenario.BOOT_S,
            )
        with self.show.waiting("the members' addresses, by DHCP"):
            self.stage.wait(
                'addresses of all members',
                lambda: all(
                    self.stage.console(uuid).address() for uuid in self.members
                ),
                scenario.BOOT_S,
            )
        self.before = self._cputunes()
        self.ports = self._external_ids()
        first = {uuid: self._progress(uuid) for uuid in self.names}
        time.sleep(4)
        self.show.table(
            'Progress that the programs in the guests report',
            ('server', 'program', 'first', 'four seconds later'),
            [
                (
                    name,
                    'hog' if uuid == self.plain else 'barrier',
                    first[uuid],
                    self._progress(uuid),
                )
                for uuid, name in self.names.items()
            ],
        )

        self._show_frames('Frames on the uplinks, before an agent writes')

    def _show_frames(self, title: str) -> dict[tuple[str, str], list[int]]:
        """Show which uplinks packets between members take.

        :returns: frames between two hosts, as :meth:`Scenario.frames`.
        """
        between = self.stage.frames(*self.apart, PACKETS)
        within = self.stage.frames(*self.together, PACKETS)
        self.show.table(
            title,
            (
                f'{PACKETS} packets and answers',
                'host',
                '',
                *(f'n{rail}' for rail in range(realhosts.UPLINKS)),
            ),
            [
                (
                    ' and '.join(self.names[uuid] for uuid in pair),
                    host,
                    way,
                    *counts,
                )
                for pair, frames in (
                    (self.apart, between),
                    (self.together, within),
                )
                for (host, way), counts in frames.items()
            ],
        )
        if any(map(any, within.values())):
            raise DemoError(f'frames left the host: {within}')
        return between

    def _check_frames(self) -> None:
        """Check that packets arrive on the uplinks that members claimed."""
        between = self._show_frames('Frames on the uplinks, with agents')
        for uuid in self.apart:
            arrived = between[self.stage.host_of(uuid).name, 'in']
            rail = self.stage.claimed_rail(uuid)
            if arrived[rail] < PACKETS or sum(arrived) > arrived[rail]:
                raise DemoError(
                    f'{self.names[uuid]} claimed n{rail} and got {arrived}'
                )
        self.show.say('all arrived on the uplink that the receiver claimed')

    def step_5_control(self) -> None:
        """Have the agents control the members; show a timeline."""
        self.show.heading('5. The agents sense, decide and write')
        dry_run_changes = {
            self.names[uuid]: tune.changes(self.before[uuid])
            for uuid, tune in self._cputunes().items()
        }
        if any(dry_run_changes.values()):
            raise DemoError(f'the dry run wrote: {dry_run_changes}')
        self.show.say('with --dry-run, the agent decided and wrote nothing')
        self.stage.stop_agents()
        self._start_agents()
        with self.show.waiting('first writes'):
            self._wait_for_writes()
        self._check_frames()
        self._timeline()
        if self.saw_io_phase and (os.cpu_count() or 1) < 4:
            self.show.say(
                'On two CPUs an I/O pool has one CPU, less than a member '
                'needs, so the members keep their pins in the I/O phase.'
            )
            self.show.say(
                'On a host with four CPUs or more they would move into it.'
            )
        now = self._cputunes()
        self._compare('virsh schedinfo and vcpupin', self.before, now)
        if os.environ.get('VHPC_DEMO_PAUSE'):
            self._pause()
        if now[self.plain].changes(self.before[self.plain]):
            raise DemoError('the server without vhpc: specs was written to')
        self.show.say('the server without vhpc: specs was never written to')

    def _timeline(self) -> None:
        rows: list[Any] = []
        last = {uuid: self._progress(uuid) or 0 for uuid in self.names}
        receiver, elsewhere = self.apart
        sender = self.stage.start_outsider(self.stage.host_of(elsewhere))
        address = self.stage.console(receiver).address() or ''
        self.show.say(
            f'{self.names[receiver]} gets packets from outside of the cluster '
            f'from second {TRAFFIC_ROWS.start * ROW_S} to '
            f'{TRAFFIC_ROWS.stop * ROW_S}'
        )
        length = TIMELINE_ROWS * ROW_S
        with self.show.waiting(f'a timeline of {length} s'):
            for row in range(TIMELINE_ROWS):
                with contextlib.ExitStack() as stack:
                    if row in TRAFFIC_ROWS:
                        stack.enter_context(sender.traffic(address))
                    time.sleep(ROW_S)
                    vms = self.stage.vms()
                self.saw_io_phase |= any(
                    vm['phase'] == 'io' for vm in vms.values()
                )
                for uuid, name in self.names.items():
                    progress = self._progress(uuid) or 0
                    rows.append(
                        _row(
                            (row + 1) * ROW_S,
                            name,
                            vms.get(uuid),
                            progress - last[uuid],
                        )
                    )
                    last[uuid] = progress
        self.show.table(
            'Timeline',
            (
                's',
                'server',
                'cluster',
                'phase',
                'slice ms',
                'quota/period ms',
                'pins',
                'latency us',
                'I/O events',
                'predicted/threshold',
                'progress',
            ),
            rows,
        )

    def _pause(self) -> None:
        root = self.stage.cloud.root
        programs = self.stage.cloud.program('nova-vhpc-top').parent
        host = self.stage.hosts[0]
        switch = self.stage.cloud.switch(host)
        self.show.say('everything runs; try in another terminal:')
        for line in (
            f"virsh -c '{host.uri}' list",
            f'{programs}/nova-vhpc-top --run-path {host.run_path}',
            f'ovs-vsctl --db={switch.socket} show',
            f'ls {root}/etc {root}/log',
        ):
            print(f'    {line}')
        input('  press Enter to continue: ')

    def step_6_restore(self) -> None:
        """Stop and kill the agents; check the original settings."""
        self.show.heading('6. The agents restore the original settings')
        if not self.stage.stop_agents():
            raise DemoError('an agent did not end on SIGTERM')
        self._compare_exactly('after a clean stop of the agents')
        self._start_agents()
        with self.show.waiting('first writes after a new start'):
            self._wait_for_writes()
        self.stage.kill_agents()
        written = self._cputunes()
        changed = [
            self.names[uuid]
            for uuid in self.members
            if written[uuid].changes(self.before[uuid])
        ]
        self.show.say(f'kill -9: {", ".join(changed)} keep the written values')
        self.stage.restore()
        self.show.say('nova-vhpc-agent --restore: exit status 0 on both hosts')
        self._compare_exactly('after kill -9 and --restore')

    def step_7_clean_up(self) -> None:
        """Delete the servers; check that all uplinks are free."""
        self.show.heading('7. Clean up')
        with self.show.waiting('servers deleted'):
            self.stage.tenant.delete(self.names)
        used = [
            provider['name']
            for node in self._nodes()
            for provider in self.stage.published(node)
            if provider['usages'].get(model.UPLINK)
        ]
        if used:
            raise DemoError(f'still claimed: {used}')
        self.show.say('every uplink is free again in Placement')

    def _progress(self, uuid: str) -> int | None:
        return self.stage.console(uuid).progress()

    def _cputunes(self) -> dict[str, guests.Cputune]:
        return {uuid: self.stage.cputune(uuid) for uuid in self.names}

    def _external_ids(self) -> dict[str, dict[str, str]]:
        return {uuid: self.stage.external_ids(uuid) for uuid in self.members}

    def _wait_for_writes(self) -> None:
        self.stage.wait(
            'the agents to write to all members',
            lambda: all(
                self.stage.cputune(uuid).changes(self.before[uuid])
                and 'encap-ip' in self.stage.external_ids(uuid)
                for uuid in self.members
            ),
        )

    def _compare_exactly(self, title: str) -> None:
        now = self._cputunes()
        self._compare(title, self.before, now)
        for uuid, name in self.names.items():
            if changes := now[uuid].changes(self.before[uuid]):
                raise DemoError(f'{name} is not as before: {changes}')
        ports = self._external_ids()
        if ports != self.ports:
            raise DemoError(f'ports are not as before: {self.ports}, {ports}')
        self.show.say('exactly as before, external_ids of the ports, too')

    def _compare(
        self,
        title: str,
        before: dict[str, guests.Cputune],
        now: dict[str, guests.Cputune],
    ) -> None:
        rows = []
        for uuid, name in self.names.items():
            for when, cputunes in (('before', before), ('now', now)):
                tune = cputunes[uuid]
                rows.append(
                    (
                        name if when == 'before' else '',
                        when,
                        tune['vcpu_period'],
                        tune['vcpu_quota'],
                        tune['cpu_shares'],
                        ' | '.join(tune.pins),
                        tune.emulator,
                    )
                )
        self.show.table(
            title,
            (
                'server',
                '',
                'period us',
                'quota us',
                'shares',
                'pins of vCPU 0 | 1',
                'emulator',
            ),
            rows,
        )


def _row(
    second: int, name: str, vm: dict[str, Any] | None, progress: int
) -> tuple[Any, ...]:
    if vm is None:
        return (
            second,
            name,
            *('unmanaged', '', '', '', '', '', '', ''),
            progress,
        )
    quota, period = vm['quota_us'], vm['period_us']
    slice_us, latency_us = vm['slice_us'], vm['sync_latency_us']
    return (
        second,
        name,
        (vm['cluster'] or '')[:8],
        vm['phase'],
        None if slice_us is None else slice_us / 1000,
        f'{(quota or 0) / 1000:.1f}/{(period or 0) / 1000:.1f}',
        ' '.join(vm['vcpu_pins'] or ()),
        None if latency_us is None else round(latency_us),
        vm['io_events'],
        f'{_whole(vm["predicted_events"])}/{_whole(vm["threshold_events"])}',
        progress,
    )


def _whole(number: float | None) -> str:
    return '-' if number is None else f'{number:.0f}'


def main() -> int:
    """Run the demo and clean up.

    :returns: exit status: 0; 1 if a step failed or something is left behind;
        130 if interrupted.
    """
    # SIGINT, too: a shell ignores it in programs started in the background.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.default_int_handler)
    demo = Demo()
    cloud, out = demo.stage.cloud, demo.show
    result = 1
    try:
        demo.run()
        result = 0
    except KeyboardInterrupt:
        out.say('interrupted')
        result = 130
    except Exception as error:
        out.console.print()
        out.say(f'FAILED in step "{out.step_name}"')
        out.say(f'{type(error).__name__}: {error}')
        _show_log(demo)
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        demo.stage.halt()
    leftovers = show.find_leftovers(cloud.tag, str(cloud.root))
    if leftovers:
        out.say('left behind: ' + '; '.join(leftovers))
        result = result or 1
    else:
        out.say('left behind: no process, bridge, domain or namespace')
    if result:
        for name in ('db', 'rabbit', 'compute', 'nova'):
            shutil.rmtree(cloud.root / name, ignore_errors=True)
        out.say(f'logs and configuration: {cloud.root}')
    else:
        cloud.stop()
    out.say(f'duration: {time.monotonic() - out.started:.0f} s')
    print('demo: OK' if result == 0 else 'demo: FAILED', flush=True)
    return result


def _show_log(demo: Demo) -> None:
    if demo.log is not None:
        demo.show.say(f'the end of {demo.log.log}:')
        print(demo.log.tail(25))
    # If a server fails to build, nova-compute's log has the cause, and those
    # of nova-api and nova-scheduler do not.
    for daemon in demo.stage.cloud.daemons():
        if error := daemon.last_error():
            demo.show.say(f'the last error in {daemon.log}:')
            print(error)


if __name__ == '__main__':
    sys.exit(main())
