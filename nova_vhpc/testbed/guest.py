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


"""The lab's guests as libvirt domains.

:func:`domain_xml` writes the domain as Nova's libvirt driver would have
described it, extra specs included, so that the agent cannot tell a lab
guest from a real server.
"""

import dataclasses
import uuid as uuid_module
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree

from nova_vhpc.testbed import image as _image

GuestImage = _image.GuestImage
build_image = _image.build_image

NOVA_NS = 'http://openstack.org/xmlns/libvirt/nova/1.1'

KERNEL_ARGUMENTS = (
    'console=ttyS0 quiet panic=-1 mitigations=off no_timer_check '
    'clocksource=tsc tsc=reliable nowatchdog rcupdate.'
    'rcu_cpu_stall_suppress=1 random.trust_cpu=on'
)
"""A starved vCPU is what the lab is about; the guest must not complain."""

WORKLOADS = (
    'barrier',
    'block',
    'cpi',
    'hog',
    'stream',
    'pingpong',
    'allreduce',
    'web',
)


@dataclasses.dataclass(frozen=True, slots=True)
class GuestSpec:
    """One guest that is to run.

    :ivar kind: guests of one kind do the same work and should progress
        alike.
    :ivar cluster: virtual cluster of the guest; None for a guest outside
        of any.
    :ivar extra_specs: extra specs of the flavor; None makes a domain that
        is not Nova's, to which the agent never writes.
    :ivar parallel: whether the guest runs a parallel program.
    """

    name: str
    workload: str
    kind: str
    vcpus: int = 2
    cluster: str | None = None
    extra_specs: Mapping[str, str] | None = None
    parallel: bool = True
    network: bool = False
    arguments: Mapping[str, str | int] = dataclasses.field(
        default_factory=dict
    )


def nonce_of(name: str) -> int:
    """Number that a guest's shared page carries; tells guests apart."""
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
) -> str:
    """XML of one guest.

    :param uuid: of the domain, which is the server's; random by default.
    :param memory_mib: the kernel needs about 90.
    :param workload: one of :data:`WORKLOADS`.
    :param extra_specs: the flavor's; an empty mapping gives a Nova server
        without any, None a domain that Nova knows nothing of.
    :param bridges: one virtio NIC on each; the first carries the workload.
    :param console: file for the guest's serial console.
    :param arguments: more ``vhpc.<key>=<value>`` for the workload.
    :param cpuset: host CPUs as ``<vcpu cpuset=...>``; None leaves it out,
        as Nova does without ``cpu_shared_set``.
    :param disk: raw image as virtio disk.
    """
    domain = ElementTree.Element('domain', type='qemu')
    _text(domain, 'name', name)
    _text(domain, 'uuid', uuid or str(uuid_module.uuid4()))
    if extra_specs is not None:
        _nova_metadata(domain, name, vcpus, memory_mib, extra_specs)
    _text(domain, 'memory', str(memory_mib), unit='MiB')
    backing = ElementTree.SubElement(domain, 'memoryBacking')
    ElementTree.SubElement(backing, 'source', type='memfd')
    ElementTree.SubElement(backing, 'access', mode='shared')
    vcpu = _text(domain, 'vcpu', str(vcpus), placement='static')
    if cpuset is not None:
        vcpu.set('cpuset', cpuset)
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
    """Command line that makes the image run one workload.

    :raises ValueError: for a workload that the image does not have.
    """
    if workload not in WORKLOADS:
        raise ValueError(
            f"workload '{workload}' is not one of {', '.join(WORKLOADS)}"
        )
    words = {'workload': workload, 'nonce': nonce_of(name)}
    words.update(arguments or {})
    ours = ' '.join(f'vhpc.{key}={value}' for key, value in words.items())
    return f'{KERNEL_ARGUMENTS} {ours}'


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
    """Nova's own metadata, as LibvirtConfigGuestMetaNovaInstance does it."""
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
