# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Real libvirtd and real QEMU guests.

There are two kinds of guests, both of which start within a moment: *idle*
guests have firmware only; *busy* guests run
:mod:`nova_vhpc_lab.testbed.spinner`, which keeps every vCPU running.
"""

import contextlib
import os
import pathlib
import shutil
import tempfile
import uuid as uuid_module
import xml.etree.ElementTree as ElementTree
from typing import Any

import libvirt
from oslotest import base

from nova_vhpc.linux import cgroup, qemu_process
from nova_vhpc_lab.testbed import guest, image, libvirtd, spinner

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE

OWN_QUOTA = """
<shares>3000</shares><period>50000</period><quota>20000</quota>
<global_period>100000</global_period><global_quota>90000</global_quota>
<emulator_period>80000</emulator_period>
<emulator_quota>40000</emulator_quota>
<emulatorpin cpuset='1'/>
"""
"""A cputune with a value of every kind."""

_BOOT_TAGS = ('kernel', 'initrd', 'cmdline')


def everything(domain: libvirt.virDomain) -> Any:
    """Return all cputune values of a domain, to be compared exactly."""
    return (
        domain.schedulerParametersFlags(LIVE),
        domain.vcpuPinInfo(LIVE),
        domain.emulatorPinInfo(LIVE),
    )


def in_kernel(domain: libvirt.virDomain) -> Any:
    """Return what libvirt does not know: affinities, and ``cpu.idle``."""
    processes = qemu_process.Processes()
    pid = processes.find(domain.UUIDString())
    tids = processes.vcpu_threads(pid, range(domain.maxVcpus()))
    weight_file = processes.weight_file(pid, pid)
    assert weight_file is not None
    return (
        [os.sched_getaffinity(tid) for tid in tids],
        weight_file.with_name(cgroup.IDLE_FILE).read_text(),
    )


class GuestTestCase(base.BaseTestCase):
    """Starts guests on a private libvirtd, one per test class."""

    daemon: libvirtd.PrivateLibvirtd
    root: pathlib.Path
    conn: libvirt.virConnect

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        libvirt.registerErrorHandler(lambda context, error: None, None)
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix='nv-ag-'))
        cls.daemon = libvirtd.PrivateLibvirtd(cls.root / 'lv').start()
        cls.conn = libvirt.open(cls.daemon.uri)

    @classmethod
    def tearDownClass(cls) -> None:
        with contextlib.suppress(libvirt.libvirtError):
            cls.conn.close()
        cls.daemon.stop()
        shutil.rmtree(cls.root, ignore_errors=True)
        super().tearDownClass()

    def domain(
        self,
        specs: dict[str, str] | None,
        *,
        busy: bool = False,
        vcpus: int = 2,
        spare_vcpus: int = 0,
        cputune: str = '',
        cpuset: str | None = None,
        numa: bool = False,
        name: str = '',
        emulator: str = '',
    ) -> libvirt.virDomain:
        """Start a guest, which ends with the test.

        :param specs: the flavor's extra specs; None: not a Nova server.
        :param spare_vcpus: number of vCPUs that can be plugged in while the
            guest runs.
        :param cputune: children of the domain's ``<cputune>``, as XML.
        :param emulator: path of QEMU; empty for its usual one.
        """
        name = name or f'ag-{uuid_module.uuid4().hex[:8]}'
        kernel = spinner.build(self.root) if busy else pathlib.Path('/x')
        xml = guest.domain_xml(
            name,
            image.GuestImage(kernel, pathlib.Path('/x')),
            vcpus=vcpus,
            memory_mib=32,
            workload='barrier',
            extra_specs=specs,
            cpuset=cpuset,
        )
        root = ElementTree.fromstring(xml)
        system = root.find('os')
        assert system is not None
        for tag in ('initrd', 'cmdline') if busy else _BOOT_TAGS:
            element = system.find(tag)
            assert element is not None
            system.remove(element)
        vcpu = root.find('vcpu')
        assert vcpu is not None
        if spare_vcpus:
            vcpu.set('current', str(vcpus))
            vcpu.text = str(vcpus + spare_vcpus)
        place = list(root).index(vcpu) + 1
        if cputune:
            root.insert(
                place,
                ElementTree.fromstring(f'<cputune>{cputune}</cputune>'),
            )
        if numa:
            root.insert(
                place,
                ElementTree.fromstring(
                    "<numatune><memory mode='preferred' nodeset='0'/>"
                    '</numatune>'
                ),
            )
        if emulator:
            element = root.find('./devices/emulator')
            assert element is not None
            element.text = emulator
        domain = self.conn.defineXML(ElementTree.tostring(root, 'unicode'))
        self.addCleanup(self._end_domain, domain.UUIDString())
        domain.create()
        return domain

    def _end_domain(self, uuid: str) -> None:
        with contextlib.suppress(libvirt.libvirtError):
            domain = self.conn.lookupByUUIDString(uuid)
            with contextlib.suppress(libvirt.libvirtError):
                domain.destroy()
            domain.undefineFlags(
                libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            )

    @classmethod
    def reconnect(cls) -> None:
        """Connect again, after libvirtd was restarted."""
        with contextlib.suppress(libvirt.libvirtError):
            cls.conn.close()
        cls.conn = libvirt.open(cls.daemon.uri)
