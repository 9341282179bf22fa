# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Parse a domain's XML: Nova's metadata, vCPUs, pins and devices."""

import dataclasses
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence

from nova_vhpc.flavor import cpu_policy, extra_specs
from nova_vhpc.linux import cpus

NOVA_NAMESPACES = (
    'http://openstack.org/xmlns/libvirt/nova/1.1',
    'http://openstack.org/xmlns/libvirt/nova/1.0',
)
"""XML namespaces of Nova's metadata. Version 1.1 (Nova 2025.2) has the
flavor's extra specs."""


@dataclasses.dataclass(frozen=True, slots=True)
class DomainInfo:
    """The parts of a domain's XML that the agent uses.

    :ivar uuid: uuid of the domain, which is that of Nova's server.
    :ivar name: name of the domain, such as ``instance-00000001``.
    :ivar vcpus: number of vCPUs that are online.
    :ivar vcpu_numbers: their numbers, if others between them are off; None if
        they are numbered from 0 without a gap.
    :ivar nova: whether Nova created the domain; the agent never writes to
        other domains.
    :ivar flavor_specs: all extra specs of its flavor.
    :ivar specs: parsed ``vhpc:*`` extra specs of its flavor.
    :ivar repin: whether the agent may pin its vCPUs, because Nova neither
        chose host CPUs for it nor pinned it.
    :ivar server_name: name of the server in Nova when the domain was defined;
        empty if unknown.
    :ivar pins: whether the live XML has pins.
    :ivar placed: whether Nova chose its host CPUs (dedicated CPUs, or NUMA
        nodes).
    :ivar cpuset: host CPUs of ``<vcpu cpuset=...>``; None without one.
    :ivar taps: host-side names of its network interfaces.
    :ivar disks: target names of its disks.
    :ivar project: ID of its project, for clusters that the flavor names; None
        if unknown.
    """

    uuid: str
    name: str
    vcpus: int
    nova: bool
    flavor_specs: Mapping[str, str]
    specs: extra_specs.ExtraSpecs
    repin: bool
    cpuset: frozenset[int] | None = None
    taps: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    project: str | None = None
    server_name: str = ''
    pins: bool = False
    placed: bool = False
    vcpu_numbers: tuple[int, ...] | None = None

    @property
    def online_vcpus(self) -> Sequence[int]:
        """Numbers of the vCPUs that are online."""
        return self.vcpu_numbers or range(self.vcpus)

    @property
    def dedicated(self) -> bool:
        """Whether its flavor gives it dedicated host CPUs."""
        return bool(cpu_policy.dedicated_by(self.flavor_specs))

    @property
    def ours(self) -> bool:
        """Whether it is to be managed: a Nova server whose flavor asks."""
        return self.nova and self.specs.asks_agent


def parse(xml: str, static_xml: str | None = None) -> DomainInfo:
    """Parse a domain's live XML.

    :param static_xml: the domain's inactive XML, None without one. Unlike the
        live one, it does not contain pins that the agent wrote.
    :raises ValueError: the text is no domain XML.
    """
    try:
        root = ElementTree.fromstring(xml)
        static = (
            root if static_xml is None else ElementTree.fromstring(static_xml)
        )
    except ElementTree.ParseError as error:
        raise ValueError(f'not XML: {error}') from None
    uuid = root.findtext('uuid')
    if root.tag != 'domain' or not uuid:
        raise ValueError('not a <domain> with a <uuid>')
    vcpu = root.find('vcpu')
    vcpu_numbers = _vcpu_numbers(root)
    instance = _instance(root)
    flavor_specs = _flavor_specs(instance)
    nova = instance is not None
    placed = _placed(static, flavor_specs)
    return DomainInfo(
        uuid=uuid,
        name=root.findtext('name') or uuid,
        vcpus=len(vcpu_numbers) if vcpu_numbers else _vcpus(vcpu),
        nova=nova,
        flavor_specs=flavor_specs,
        specs=extra_specs.parse(flavor_specs) if nova else extra_specs.NOTHING,
        repin=not placed and static.find('./cputune/vcpupin') is None,
        cpuset=_cpuset(vcpu),
        taps=_targets(root, './devices/interface/target'),
        disks=_targets(root, './devices/disk/target'),
        project=_project(instance),
        server_name=_server_name(instance),
        pins=root.find('./cputune/vcpupin') is not None,
        placed=placed,
        vcpu_numbers=vcpu_numbers,
    )


def _instance(root: ElementTree.Element) -> ElementTree.Element | None:
    """Return Nova's metadata; None if Nova did not create the domain."""
    for namespace in NOVA_NAMESPACES:
        instance = root.find(f'./metadata/{{{namespace}}}instance')
        if instance is not None:
            return instance
    return None


def _flavor_specs(instance: ElementTree.Element | None) -> dict[str, str]:
    if instance is None:
        return {}
    path = './{*}flavor/{*}extraSpecs/{*}extraSpec'
    return {
        spec.get('name', ''): (spec.text or '').strip()
        for spec in instance.findall(path)
    }


def _project(instance: ElementTree.Element | None) -> str | None:
    project = (
        None if instance is None else instance.find('./{*}owner/{*}project')
    )
    return None if project is None else project.get('uuid')


def _server_name(instance: ElementTree.Element | None) -> str:
    """Return the name of the server in one line; empty if unknown."""
    if instance is None:
        return ''
    return ' '.join((instance.findtext('./{*}name') or '').split())


def _vcpus(vcpu: ElementTree.Element | None) -> int:
    if vcpu is None:
        return 1
    try:
        number = int(vcpu.get('current') or vcpu.text or 1)
    except ValueError:
        return 1
    return number if 0 < number <= cpus.MOST_CPUS else 1


def _vcpu_numbers(root: ElementTree.Element) -> tuple[int, ...] | None:
    """Return the numbers of the online vCPUs if there is a gap in them.

    ``virsh setvcpu --enable`` and ``--disable`` switch any but the first.
    """
    numbers = tuple(
        sorted(
            int(vcpu.get('id', ''))
            for vcpu in root.findall('./vcpus/vcpu')
            if vcpu.get('enabled') == 'yes' and vcpu.get('id', '').isdecimal()
        )
    )
    return None if numbers == tuple(range(len(numbers))) else numbers


def _cpuset(vcpu: ElementTree.Element | None) -> frozenset[int] | None:
    text = '' if vcpu is None else vcpu.get('cpuset', '')
    if not text:
        return None
    try:
        return cpus.parse_cpu_set(text)
    except ValueError:
        return None


def _placed(
    static: ElementTree.Element, flavor_specs: Mapping[str, str]
) -> bool:
    """Return whether Nova chose the host CPUs of this domain."""
    return bool(cpu_policy.dedicated_by(flavor_specs)) or any(
        static.find(path) is not None for path in ('./numatune', './cpu/numa')
    )


def _targets(root: ElementTree.Element, path: str) -> tuple[str, ...]:
    return tuple(
        name
        for name in (target.get('dev', '') for target in root.findall(path))
        if name
    )
