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

"""A libvirt of memory: domains that follow calls, and may refuse them."""

from collections.abc import Callable, Sequence
from typing import Any

import libvirt

from nova_vhpc.agent.journal import domain_metadata
from nova_vhpc.agent.libvirt import cputune

XML = """<domain type='qemu'><name>vm</name><uuid>{uuid}</uuid><metadata>
<n:instance xmlns:n="http://openstack.org/xmlns/libvirt/nova/1.1">
<n:flavor name="f"><n:extraSpecs>{spec}</n:extraSpecs></n:flavor></n:instance>
{mark}</metadata>{vcpu}{extra}{pins}
<devices><interface type='bridge'><mac address='52:54:00:00:00:01'/>
<source bridge='{bridge}'/><target dev='tap0'/></interface></devices></domain>
"""
SPEC = '<n:extraSpec name="{}">{}</n:extraSpec>'
MARK = '<vhpc:journal xmlns:vhpc="{}"/>'
ORIGINAL = {
    cputune.SHARES: 1024,
    cputune.PERIOD: 100_000,
    cputune.QUOTA: -1,
}


def vcpupins(
    pins: Sequence[tuple[bool, ...]], online: tuple[bool, ...]
) -> str:
    """Elements of the live XML: of vCPUs that may not use all there is."""
    return ''.join(
        f"<cputune><vcpupin vcpu='{vcpu}'/></cputune>"
        for vcpu, pin in enumerate(pins)
        if pin != online
    )


def refused(text: str) -> libvirt.libvirtError:
    """What libvirt raises, without a code."""
    # Or it would be the last error of a real call, in whatever test.
    libvirt.virResetLastError()
    return libvirt.libvirtError(text)


def error(code: int, text: str = 'no') -> libvirt.libvirtError:
    """What libvirt raises."""
    made = refused(text)
    made.err = (code, 0, text, 0, '', '', '', 0, 0)
    return made


class Domain:
    """One that runs.

    :ivar extra: further elements, of the persistent definition as well.
    :ivar online: CPUs of the host; who may use just these has no pins.
    :ivar comes: it is still on its way from another host.
    :ivar refuse: called before each write; may raise.
    :ivar written: what was written, and how often.
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
        self.bridge = 'br-int'
        self.mark: str | None = None
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
        return XML.format(
            uuid=self.uuid,
            spec=''.join(SPEC.format(*one) for one in self.specs.items()),
            bridge=self.bridge,
            vcpu=self.vcpu,
            extra=self.extra,
            pins='' if flags else vcpupins(self.pins, self.online),
            mark=MARK.format(domain_metadata.URI)
            if self.mark and not flags
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
        self._write('mark')
        self.mark = text

    def metadata(self, kind: int, uri: str, flags: int) -> str:
        if self.mark is None:
            raise error(libvirt.VIR_ERR_NO_DOMAIN_METADATA)
        return self.mark

    def updateDeviceFlags(self, xml: str, flags: int) -> None:
        self._write('nic')
        self.bridge = xml.partition('bridge="')[2].partition('"')[0]


class Link:
    """Stands for both the connection and its keeper."""

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
