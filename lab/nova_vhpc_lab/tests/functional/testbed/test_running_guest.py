# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Real guests of every workload boot, work and report their progress."""

import tempfile
import time
from pathlib import Path

import libvirt

from nova_vhpc.agent.libvirt import domain_xml
from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import guest, image, libvirtd, running_guest
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class TestGuests(base.TestCase):
    """One libvirtd, and guests of the workloads that need no peer."""

    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory(prefix='nvlab-')
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.image = image.build_image()
        self.daemon = libvirtd.PrivateLibvirtd(self.root / 'lv')
        self.daemon.start()
        self.addCleanup(self.daemon.stop)
        self.connection = libvirt.open(self.daemon.uri)
        self.addCleanup(self.connection.close)

    def wait_for_text(self, console, text, count=1):
        deadline = time.monotonic() + PATIENCE_S
        while console.read_text(errors='replace').count(text) < count:
            if time.monotonic() > deadline:
                self.fail(console.read_text(errors='replace'))
            time.sleep(0.2)

    def boot(self, workload, **settings):
        name = f'vg{workload}{id(self) % 10000}'
        console = self.root / f'{workload}.log'
        domain = self.connection.createXML(
            guest.domain_xml(
                name,
                self.image,
                workload=workload,
                console=console,
                **settings,
            )
        )
        self.addCleanup(domain.destroy)
        pid = int((self.daemon.run_dir / f'qemu/{name}.pid').read_text())
        page = running_guest.ProgressPage(pid, guest.nonce_of(name))
        self.addCleanup(page.close)
        page.wait(PATIENCE_S)
        return domain, page, console

    def assert_progress(self, page):
        before = page.read().work
        deadline = time.monotonic() + PATIENCE_S
        while page.read().work == before:
            if time.monotonic() > deadline:
                self.fail('no progress')
            time.sleep(0.1)

    def test_each_workload_makes_progress(self):
        for workload in ('barrier', 'block', 'cpi', 'hog', 'stream'):
            domain, page, console = self.boot(workload)
            self.assert_progress(page)
            self.assertIn('vhpc: up', console.read_text())
            domain.suspend()

    def test_suspended_guest_makes_no_progress(self):
        domain, page, _ = self.boot('barrier')
        domain.suspend()
        before = page.read().work
        time.sleep(0.3)
        self.assertEqual(before, page.read().work)
        domain.resume()
        self.assert_progress(page)

    def test_console_and_progress_page_agree(self):
        _, page, console = self.boot('hog')
        self.wait_for_text(console, 'vhpc: hog ')
        console_count = int(
            console.read_text().split('vhpc: hog ')[-1].split()[0]
        )
        self.assertLessEqual(console_count, page.read().work)

    def test_progress_pages_belong_to_their_guests(self):
        _, first, _ = self.boot('hog')
        domain, second, _ = self.boot('cpi')
        domain.suspend()
        before = second.read().work
        self.assert_progress(first)
        self.assertEqual(before, second.read().work)

    def test_guest_with_extra_specs_is_managed_by_the_agent(self):
        domain, _, _ = self.boot(
            'barrier', extra_specs={'vhpc:workload': 'parallel'}
        )
        info = domain_xml.parse(domain.XMLDesc(0))
        self.assertTrue(info.ours)
        self.assertEqual('parallel', info.specs.workload)
        self.assertEqual(2, info.vcpus)

    def test_guest_without_metadata_is_no_nova_server(self):
        domain, _, _ = self.boot('hog')
        self.assertFalse(domain_xml.parse(domain.XMLDesc(0)).nova)

    def test_guest_that_waits_long_for_its_address_reports_it(self):
        # QEMU itself answers DHCP, once the link is up.
        nic = (
            '<interface type="user"><mac address="52:54:00:12:34:56"/>'
            '<model type="virtio"/><link state="{}"/></interface>'
        )
        console = self.root / 'dhcp.log'
        xml = guest.domain_xml(
            f'vgdhcp{id(self) % 10000}',
            self.image,
            workload='barrier',
            console=console,
            arguments={'net': 'dhcp'},
        )
        xml = xml.replace('</devices>', f'{nic.format("down")}</devices>')
        domain = self.connection.createXML(xml)
        self.addCleanup(domain.destroy)
        # udhcpc sends three times, pauses, and sends again.
        self.wait_for_text(console, 'broadcasting discover', 4)
        domain.updateDeviceFlags(nic.format('up'))
        self.wait_for_text(console, 'vhpc: address 10.0.2.15 by DHCP')
