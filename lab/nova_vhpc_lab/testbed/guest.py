# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Describe guests as libvirt domains.

:func:`domain_xml` describes a domain as Nova's libvirt driver does, extra
specs included, so that to the agent a guest of the test bed is the same as a
real server.
"""

import dataclasses
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree

from nova_vhpc_lab.testbed import parallel_programs
from nova_vhpc_lab.testbed.image import GuestImage

NOVA_NS = 'http://openstack.org/xmlns/libvirt/nova/1.1'

KERNEL_ARGUMENTS = (
    'console=ttyS0 quiet panic=-1 mitigations=off no_timer_check '
    'clocksource=tsc tsc=reliable nowatchdog rcupdate.'
    'rcu_cpu_stall_suppress=1 random.trust_cpu=on'
)
"""Among others, keeps the guest from reporting stalls of starved vCPUs."""

WORKLOADS = (
    'barrier',
    'block',
    'cpi',
    'hog',
    'stream',
    'pingpong',
    'allreduce',
    'web',
    *parallel_programs.LIBRARIES,
)


PERIOD_US = 100_000
"""Period of a quota, in microseconds: libvirt's and Nova's default."""


@dataclasses.dataclass(frozen=True, slots=True)
class GuestSpec:
    """What a guest is and runs.

    :ivar name: name of the guest within its mix.
    :ivar workload: one of :data:`WORKLOADS`.
    :ivar kind: guests of one kind do the same work and should progress
        alike.
    :ivar vcpus: number of vCPUs.
    :ivar memory_mib: memory, in MiB.
    :ivar cluster: virtual cluster of the guest, or None.
    :ivar extra_specs: extra specs of the flavor; None makes a domain that
        is not Nova's, to which the agent never writes.
    :ivar parallel: whether the guest runs a parallel program.
    :ivar network: whether the guest has a NIC.
    :ivar quota_us: CPU time that each vCPU may use per :data:`PERIOD_US`, in
        microseconds, as the flavor's ``quota:cpu_quota``; None for no quota.
    :ivar arguments: further ``vhpc.<key>=<value>`` on the kernel command line.
    """

    name: str
    workload: str
    kind: str
    vcpus: int = 2
    memory_mib: int = 128
    cluster: str | None = None
    extra_specs: Mapping[str, str] | None = None
    parallel: bool = True
    network: bool = False
    quota_us: int | None = None
    arguments: Mapping[str, str | int] = dataclasses.field(
        default_factory=dict
    )


def nonce_of(name: str) -> int:
    """Return the number that identifies a guest's progress page."""
    return zlib.crc32(name.encode())


def domain_xml(
    name: str,
    image: GuestImage,
    *,
    uuid: str | None = None,
    vcpus: int = 2,
    memory_mib: int = 128,
    workload: str = 'barrier',
    extra_specs: Mapping[str, str] | None = None,
    bridges: Iterable[str] = (),
    console: Path | None = None,
    arguments: Mapping[str, str | int] | None = None,
    cpuset: str | None = None,
    disk: Path | None = None,
    quota_us: int | None = None,
) -> str:
    """Return the domain XML of one guest.

    :param name: name of the domain.
    :param image: kernel and initramfs.
    :param uuid: UUID of the domain and of its server; by default random.
    :param vcpus: number of vCPUs.
    :param memory_mib: memory, in MiB; the kernel needs about 90.
    :param workload: one of :data:`WORKLOADS`.
    :param extra_specs: extra specs of the flavor. An empty mapping makes a
        Nova server without extra specs, None a domain that is not Nova's.
    :param bridges: bridges on which the guest gets one virtio NIC each; the
        first NIC carries the workload's packets.
    :param console: file for the guest's serial console.
    :param arguments: further ``vhpc.<key>=<value>`` for the workload.
    :param cpuset: host CPUs for ``<vcpu cpuset=...>``; None leaves the
        attribute out, as Nova does without ``cpu_shared_set``.
    :param disk: raw image of a virtio disk.
    :param quota_us: CPU time of each vCPU per :data:`PERIOD_US`; None for no
        quota.
    """
    if extra_specs is not None and quota_us is not None:
        extra_specs = {
            **extra_specs,
            'quota:cpu_period': str(PERIOD_US),
            'quota:cpu_quota': str(quota_us),
        }
    domain = ElementTree.Element('domain', type='qemu')
    _text(domain, 'name', name)
    _text(domain, 'uuid', uuid or str(uuid4()))
    if extra_specs is not None:
        _nova_metadata(domain, name, vcpus, memory_mib, extra_specs)
    _text(domain, 'memory', str(memory_mib), unit='MiB')
    backing = ElementTree.SubElement(domain, 'memoryBacking')
    ElementTree.SubElement(backing, 'source', type='memfd')
    ElementTree.SubElement(backing, 'access', mode='shared')
    vcpu = _text(domain, 'vcpu', str(vcpus), placement='static')
    if cpuset is not None:
        vcpu.set('cpuset', cpuset)
    if quota_us is not None:
        cputune = ElementTree.SubElement(domain, 'cputune')
        _text(cputune, 'period', str(PERIOD_US))
        _text(cputune, 'quota', str(quota_us))
    system = ElementTree.SubElement(domain, 'os')
    _text(system, 'type', 'hvm', arch='x86_64', machine='pc')
    _text(system, 'kernel', str(image.kernel))
    _text(system, 'initrd', str(image.initrd))
    _text(system, 'cmdline', kernel_cmdline(name, workload, arguments))
    features = ElementTree.SubElement(domain, 'features')
    ElementTree.SubElement(features, 'acpi')
    ElementTree.SubElement(features, 'apic')
    _text(domain, 'on_crash', 'destroy')
    devices = ElementTree.SubElement(domain, 'devices')
    _text(devices, 'emulator', '/usr/bin/qemu-system-x86_64')
    ElementTree.SubElement(
        devices, 'controller', type='usb', index='0', model='none'
    )
    ElementTree.SubElement(devices, 'memballoon', model='none')
    if disk is not None:
        _disk(devices, disk)
    for bridge in bridges:
        nic = ElementTree.SubElement(devices, 'interface', type='bridge')
        ElementTree.SubElement(nic, 'source', bridge=bridge)
        ElementTree.SubElement(nic, 'model', type='virtio')
    if console is not None:
        serial = ElementTree.SubElement(devices, 'serial', type='file')
        ElementTree.SubElement(serial, 'source', path=str(console))
        ElementTree.SubElement(serial, 'target', port='0')
    ElementTree.indent(domain)
    return ElementTree.tostring(domain, encoding='unicode')


def kernel_cmdline(
    name: str, workload: str, arguments: Mapping[str, str | int] | None = None
) -> str:
    """Return the kernel command line that makes the image run one workload.

    :param name: name of the domain.
    :param workload: one of :data:`WORKLOADS`.
    :param arguments: further ``vhpc.<key>=<value>`` for the workload.
    :raises ValueError: the image does not have this workload.
    """
    if workload not in WORKLOADS:
        raise ValueError(
            f"workload '{workload}' is not one of {', '.join(WORKLOADS)}"
        )
    words = {'workload': workload, 'nonce': nonce_of(name)}
    words.update(arguments or {})
    options = ' '.join(f'vhpc.{key}={value}' for key, value in words.items())
    return f'{KERNEL_ARGUMENTS} {options}'


def _text(
    parent: ElementTree.Element, tag: str, text: str, **attributes: str
) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _disk(devices: ElementTree.Element, path: Path) -> None:
    disk = ElementTree.SubElement(devices, 'disk', type='file', device='disk')
    ElementTree.SubElement(disk, 'driver', name='qemu', type='raw')
    ElementTree.SubElement(disk, 'source', file=str(path))
    ElementTree.SubElement(disk, 'target', dev='vda', bus='virtio')


def _nova_metadata(
    domain: ElementTree.Element,
    name: str,
    vcpus: int,
    memory_mib: int,
    extra_specs: Mapping[str, str],
) -> None:
    """Add Nova's metadata, as ``LibvirtConfigGuestMetaNovaInstance`` does."""
    ElementTree.register_namespace('nova', NOVA_NS)

    def nova(tag: str) -> str:
        return f'{{{NOVA_NS}}}{tag}'

    metadata = ElementTree.SubElement(domain, 'metadata')
    instance = ElementTree.SubElement(metadata, nova('instance'))
    ElementTree.SubElement(instance, nova('package'), version='34.0.0')
    _text(instance, nova('name'), name)
    flavor = ElementTree.SubElement(
        instance,
        nova('flavor'),
        name='lab',
        id='5bb1bd9c-1e7e-4f1c-8f4f-2f1f4a1f5d10',
    )
    _text(flavor, nova('memory'), str(memory_mib))
    for tag in ('disk', 'swap', 'ephemeral'):
        _text(flavor, nova(tag), '0')
    _text(flavor, nova('vcpus'), str(vcpus))
    specs = ElementTree.SubElement(flavor, nova('extraSpecs'))
    for key, value in extra_specs.items():
        spec = _text(specs, nova('extraSpec'), value)
        spec.set('name', key)
