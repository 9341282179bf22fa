# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Right VMs only; events and reconcile."""

import http.server
import json
import os
import threading

import libvirt

from nova_vhpc.agent.journal import store
from nova_vhpc.tests.functional.agent import base

PARALLEL = {'vhpc:workload': 'parallel'}
NOVA_URI = 'http://openstack.org/xmlns/libvirt/nova/1.1'

FAR = 3600
"""A reconcile period that does not come: only events help."""


class TestRightVms(base.AgentTestCase):
    """Who is written to, and within which bounds."""

    def test_servers_without_vhpc_extra_specs_are_not_written(self) -> None:
        ours = self.domain(PARALLEL)
        plain = self.domain({})
        other = self.domain(None)
        quota_only = self.domain({'quota:cpu_shares': '10'})
        untouched = [plain, other, quota_only]
        before = [d.XMLDesc(0) for d in untouched]
        with self.running(reconcile_period=0.2):
            self.wait_for_write(ours)
            self.wait_for_ticks(10)
            self.assertEqual(before, [d.XMLDesc(0) for d in untouched])
            for domain in untouched:
                self.assertIsNone(self.vm(domain))
        self.assertEqual(before, [d.XMLDesc(0) for d in untouched])

    def test_dedicated_numa_and_pinned_servers_keep_their_pins(self) -> None:
        dedicated = self.domain(
            {**PARALLEL, 'hw:cpu_policy': 'dedicated'},
            cputune="<vcpupin vcpu='0' cpuset='1'/>"
            "<vcpupin vcpu='1' cpuset='0'/>",
        )
        numa = self.domain(PARALLEL, numa=True)
        by_hand = self.domain(
            PARALLEL, cputune="<vcpupin vcpu='0' cpuset='1'/>"
        )
        free = self.domain(PARALLEL)
        guarded = [dedicated, numa, by_hand]
        pins = [d.vcpuPinInfo(base.LIVE) for d in guarded]
        with self.running(vhpc_control__pinning_policy='balance'):
            for domain in (numa, by_hand, free):
                self.wait_for_write(domain)
            self.wait_for(lambda: self.vm(free)['moves'], 'pins')
            for domain in guarded:
                self.assertFalse(self.vm(domain)['repin'])
            self.wait_for_ticks(5)
            self.assertEqual(pins, [d.vcpuPinInfo(base.LIVE) for d in guarded])
            # Each vCPU has its own CPU, so no slice could bring it anything.
            self.assertEqual(0, self.vm(dedicated)['writes'])

    def test_flavor_quota_keeps_its_share_of_the_period(self) -> None:
        domain = self.domain(
            {**PARALLEL, 'quota:cpu_quota': '20000'},
            cputune='<period>50000</period><quota>20000</quota>',
        )
        with self.running():
            self.wait_for_write(domain)
            now = domain.schedulerParametersFlags(base.LIVE)
            self.assertNotEqual(50_000, now['vcpu_period'])
            self.assertEqual(
                0.4, round(now['vcpu_quota'] / now['vcpu_period'], 6)
            )

    def test_pins_stay_within_cpu_shared_set(self) -> None:
        domain = self.domain(PARALLEL)
        with self.running(
            cpu_shared_set='1', vhpc_control__pinning_policy='balance'
        ):
            self.wait_for_write(domain)
            self.wait_for(
                lambda: all(
                    pin[:2] == (False, True)
                    for pin in domain.vcpuPinInfo(base.LIVE)
                ),
                'both vCPUs to be on CPU 1 alone',
            )

    def test_invalid_workload_is_general_and_logged_once(self) -> None:
        domain = self.domain({'vhpc:workload': 'fast'})
        with self.running(reconcile_period=0.2):
            self.wait_for(lambda: self.vm(domain), 'it to be managed')
            self.assertEqual('general', self.vm(domain)['workload'])
            self.wait_for_ticks(10)
            self.assertEqual(1, len(self.log_lines("'fast' is not one of")))

    def test_extra_spec_change_starts_and_ends_management(self) -> None:
        domain = self.domain({})
        before = base.everything(domain)
        with self.running(reconcile_period=FAR):
            self.assertIsNone(self.vm(domain))
            self.set_flavor(domain, 'parallel')
            self.wait_for_write(domain)
            self.assertNotEqual(before, base.everything(domain))
            self.set_flavor(domain, None)
            self.wait_for(
                lambda: base.everything(domain) == before, 'the restore'
            )
            self.wait_for(lambda: self.vm(domain) is None, 'opt-out')
            self.assertNotIn(store.METADATA_URI, domain.XMLDesc(0))

    def set_flavor(self, domain: libvirt.virDomain, workload: object) -> None:
        """What a resize leaves in Nova's metadata."""
        spec = (
            f'<extraSpec name="vhpc:workload">{workload}</extraSpec>'
            if workload
            else ''
        )
        domain.setMetadata(
            libvirt.VIR_DOMAIN_METADATA_ELEMENT,
            f'<instance><flavor name="f"><extraSpecs>{spec}</extraSpecs>'
            '</flavor></instance>',
            'nova',
            NOVA_URI,
            base.LIVE,
        )


class TestFollow(base.AgentTestCase):
    """Domains that come, go and change while the agent runs."""

    def test_events_alone_start_and_end_management(self) -> None:
        with self.running(reconcile_period=FAR):
            domain = self.domain(PARALLEL)
            self.wait_for_write(domain)
            domain.destroy()
            self.wait_for(lambda: self.vm(domain) is None, 'it to be gone')
            self.wait_for(
                lambda: not list((self.path / 'state/journal').iterdir()),
                'the journal to be empty',
            )

    def test_hard_rebooted_server_is_written_again(self) -> None:
        domain = self.domain(PARALLEL)
        with self.running(reconcile_period=FAR):
            ours = self.wait_for_period(domain)
            # As Nova does it: gone, and made again from XML of its own.
            domain.destroy()
            domain.create()
            self.assertNotEqual(0, domain.ID())
            self.wait_for_write(domain)
            self.wait_for(lambda: self.period(domain) == ours, 'our period')
        self.assertEqual(100_000, self.period(domain))

    def test_server_stays_managed_after_suspend_and_reset(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        with self.running(reconcile_period=FAR):
            ours = self.wait_for_period(domain)
            domain.suspend()
            domain.resume()
            domain.reset()
            self.wait_for_ticks(5)
            self.assertIsNotNone(self.vm(domain))
            self.assertEqual(ours, self.period(domain))
        self.assertEqual(before, base.everything(domain))

    def test_resync_finds_a_server_whose_start_event_was_missed(self) -> None:
        """A libvirt that was away when a domain came sends no event."""
        domain = self.domain(PARALLEL)
        with self.running(reconcile_period=0.5):
            self.wait_for_write(domain)
            self.daemon.kill()
            self.daemon.start()
            self.reconnect()
            domain = self.conn.lookupByUUIDString(domain.UUIDString())
            second = self.domain(PARALLEL)
            self.wait_for_write(second)

    def test_migrating_server_is_restored_before_nova_moves_it(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        nova = FakeNova(domain.UUIDString())
        self.addCleanup(nova.stop)
        with self.running(
            vhpc_nova__auth_type='none',
            vhpc_nova__endpoint_override=nova.url,
            vhpc_nova__poll_interval=1,
        ):
            self.wait_for_write(domain)
            nova.task_state = 'migrating'
            self.wait_for(
                lambda: base.everything(domain) == before, 'the restore'
            )
            self.assertEqual('leaving', self.vm(domain)['hands_off'])
            # It failed, or was aborted: the VM stays.
            nova.task_state = None
            self.wait_for(
                lambda: base.everything(domain) != before, 'a new write'
            )
        self.assertEqual(before, base.everything(domain))

    def test_server_is_managed_again_after_a_domain_job(self) -> None:
        """A migration job in progress: no write is tried."""
        domain = self.domain(PARALLEL)
        with self.running(reconcile_period=0.3):
            self.wait_for_write(domain)
            # A dump is the longest job one host alone can do.
            target = self.path / 'dump'
            domain.coreDump(str(target), libvirt.VIR_DUMP_LIVE)
            os.unlink(target)
            self.wait_for(
                lambda: self.vm(domain) and not self.vm(domain)['hands_off'],
                'the job to be over',
            )


class FakeNova:
    """One answer of ``GET /servers/detail``, for one server."""

    def __init__(self, uuid: str) -> None:
        self.task_state: str | None = None
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(
                    {
                        'servers': [
                            {
                                'id': uuid,
                                'tenant_id': 'p',
                                'flavor': {'extra_specs': PARALLEL},
                                'OS-EXT-STS:task_state': fake.task_state,
                            }
                        ]
                    }
                ).encode()
                self.send_response(200)
                self.send_header('Content-Type', 'application/json')
                self.send_header('Content-Length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        self._server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), Handler
        )
        self.url = f'http://127.0.0.1:{self._server.server_port}'
        threading.Thread(
            target=self._server.serve_forever, daemon=True
        ).start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
