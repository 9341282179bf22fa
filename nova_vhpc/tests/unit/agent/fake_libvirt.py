# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""An in-memory libvirt: domains that apply calls, or refuse them."""

from collections.abc import Callable, Sequence
from typing import Any

import libvirt

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import cputune

XML = """<domain type='qemu'><name>vm</name><uuid>{uuid}</uuid><metadata>
<n:instance xmlns:n="http://openstack.org/xmlns/libvirt/nova/1.1">
<n:flavor name="f"><n:extraSpecs>{spec}</n:extraSpecs></n:flavor></n:instance>
{metadata}</metadata>{vcpu}{extra}{pins}
<devices><interface type='ethernet'><mac address='52:54:00:00:00:01'/>
<target dev='tap01' managed='no'/></interface></devices></domain>
"""
SPEC = '<n:extraSpec name="{}">{}</n:extraSpec>'
METADATA = '<vhpc:journal xmlns:vhpc="{}"/>'
ORIGINAL = {
    cputune.SHARES: 1024,
    cputune.PERIOD: 100_000,
    cputune.QUOTA: -1,
}


def vcpupins(
    pins: Sequence[tuple[bool, ...]], online: tuple[bool, ...]
) -> str:
    """Return ``<vcpupin>`` elements of vCPUs that have not all online CPUs."""
    return ''.join(
        f"<cputune><vcpupin vcpu='{vcpu}'/></cputune>"
        for vcpu, pin in enumerate(pins)
        if pin != online
    )


def refused(text: str) -> libvirt.libvirtError:
    """Return an error of libvirt without a code."""
    # The binding would take the code of the last real call, of any test.
    libvirt.virResetLastError()
    return libvirt.libvirtError(text)


def error(code: int, text: str = 'no') -> libvirt.libvirtError:
    """Return an error of libvirt."""
    libvirt_error = refused(text)
    libvirt_error.err = (code, 0, text, 0, '', '', '', 0, 0)
    return libvirt_error


class Domain:
    """A running domain.

    :ivar extra: further elements of the live and the persistent XML.
    :ivar online: host CPUs that are online; a vCPU with all of them has no
        pins.
    :ivar comes: whether the domain is still being migrated to this host.
    :ivar metadata_xml: the metadata copy; None without one.
    :ivar refuse: called before each write; may raise.
    :ivar written: kinds of all writes: values, pin or metadata.
    """

    def __init__(self, uuid: str = 'u', **specs: str) -> None:
        self.uuid = uuid
        self.specs = {'vhpc:workload': 'parallel', **specs}
        self.id = 1
        self.job = 0
        self.comes = False
        self.persistent = True
        self.values = dict(ORIGINAL)
        self.pins: list[tuple[bool, ...]] = [(True, True)] * 2
        self.online: tuple[bool, ...] = (True, True)
        self.metadata_xml: str | None = None
        self.vcpu = '<vcpu>2</vcpu>'
        self.extra = ''
        self.written: list[str] = []
        self.refuse: Callable[[], None] = lambda: None

    def _write(self, what: str) -> None:
        self.refuse()
        self.written.append(what)

    def UUIDString(self) -> str:
        return self.uuid

    def name(self) -> str:
        return 'vm'

    def connect(self) -> 'Domain':
        return self

    def lookupByUUIDString(self, uuid: str) -> 'Domain':
        return self

    def getCPUMap(self) -> tuple[int, tuple[bool, ...], int]:
        return len(self.online), self.online, sum(self.online)

    def ID(self) -> int:
        return self.id

    def XMLDesc(self, flags: int = 0) -> str:
        if flags not in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            raise ValueError(f'no such XML: {flags}')
        return XML.format(
            uuid=self.uuid,
            spec=''.join(SPEC.format(*one) for one in self.specs.items()),
            vcpu=self.vcpu,
            extra=self.extra,
            pins='' if flags else vcpupins(self.pins, self.online),
            metadata=METADATA.format(store.METADATA_URI)
            if self.metadata_xml and not flags
            else '',
        )

    def isPersistent(self) -> bool:
        return self.persistent

    def jobInfo(self) -> list[int]:
        if self.comes:
            raise error(libvirt.VIR_ERR_OPERATION_UNSUPPORTED)
        return [self.job]

    def schedulerParametersFlags(self, flags: int) -> dict[str, int]:
        return dict(self.values)

    def setSchedulerParametersFlags(
        self, values: dict[str, int], flags: int
    ) -> None:
        self._write('values')
        self.values.update(values)

    def vcpuPinInfo(self, flags: int) -> list[tuple[bool, ...]]:
        return list(self.pins)

    def emulatorPinInfo(self, flags: int) -> tuple[bool, ...]:
        return (True, True)

    def pinVcpuFlags(self, vcpu: int, pin: Any, flags: int) -> None:
        self._write('pin')
        self.pins[vcpu] = tuple(pin)

    def setMetadata(
        self, kind: int, text: str | None, prefix: str, uri: str, flags: int
    ) -> None:
        self._write('metadata')
        self.metadata_xml = text

    def metadata(self, kind: int, uri: str, flags: int) -> str:
        if self.metadata_xml is None:
            raise error(libvirt.VIR_ERR_NO_DOMAIN_METADATA)
        return self.metadata_xml


class Link:
    """Both libvirt's connection and the agent's."""

    up = True

    def __init__(self, *domains: Domain) -> None:
        self.domains = {domain.uuid: domain for domain in domains}

    def get(self) -> 'Link':
        return self

    def failed(self, error: Exception) -> None:
        pass

    def runs(self, uuid: str, run: int) -> bool:
        return self.lookupByUUIDString(uuid).ID() == run

    def getLibVersion(self) -> int:
        return 9_000_000

    def isAlive(self) -> bool:
        return True

    def lookupByUUIDString(self, uuid: str) -> Domain:
        if uuid not in self.domains:
            raise error(libvirt.VIR_ERR_NO_DOMAIN)
        return self.domains[uuid]

    def listAllDomains(self, flags: int = 0) -> list[Domain]:
        return list(self.domains.values())
