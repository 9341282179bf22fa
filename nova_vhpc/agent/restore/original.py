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

"""What a domain was set to before we first wrote to it, by who can tell."""

import dataclasses
import pathlib
import xml.etree.ElementTree as ElementTree
from typing import Any

import libvirt

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.restore import incoming
from nova_vhpc.control import model
from nova_vhpc.linux import cgroup, cpus, qemu_process

DEFAULT_PERIOD_US = 100_000


def known(
    domain: Any,
    record: store.JournalRecord | None,
    copy: store.JournalRecord | None,
    identity: qemu_process.Identity,
) -> tuple[cputune.Cputune | None, frozenset[str]]:
    """What the journal or its copy says of it.

    :param record: of this run; None without one.
    :param copy: in its XML, of this run or of another; None without one.
    :param identity: of this run.
    :returns: None if there is neither, and values that are not ours.
    :raises libvirt.libvirtError: it cannot be told.
    """
    if record is not None:
        return _with_cpus_that_came(domain, record), record.released
    if copy is None:
        return None, frozenset()
    if copy.identity.same_run(identity):
        return _with_cpus_that_came(domain, copy), copy.released
    # Came from another host, or back from disk: the other settings are
    # the VM's own, the CPUs are this host's.
    host_cpus = len(domain.emulatorPinInfo(cputune.LIVE))
    # Nova has written its own cpuset for this host into the XML.
    cpuset = domain_xml.parse(domain.XMLDesc(0)).cpuset
    here = frozenset(range(host_cpus))
    pins = incoming.pins(copy, cpuset, here)
    return (
        dataclasses.replace(
            copy.original,
            vcpupins=tuple(pin or cpuset or here for pin in pins),
            emulatorpin=frozenset(),
            host_cpus=host_cpus,
        ),
        incoming.not_ours(copy),
    )


def _with_cpus_that_came(
    domain: Any, record: store.JournalRecord
) -> cputune.Cputune:
    """What a VM was before us, had the host's CPUs been those of today.

    One that nobody pinned could use those, too, that were switched on while
    no agent looked; :mod:`.switched_cpus` sees to the others.
    """
    original = record.original
    if not record.floats or domain_xml.parse(domain.XMLDesc(0)).cpuset:
        return original
    online = cputune.online(domain)
    return dataclasses.replace(
        original,
        vcpupins=tuple(known | online for known in original.vcpupins),
        host_cpus=max(original.host_cpus, *(cpu + 1 for cpu in online)),
    )


def from_definition(domain: Any, cgroup_root: pathlib.Path) -> cputune.Cputune:
    """What a domain would be set to if it were started anew.

    The last resort when the journal is torn and there is no mark: Nova and
    we never change the cputune of a persistent definition of a VM that
    runs.

    :raises libvirt.libvirtError: it cannot be told.
    """
    now = cputune.read(domain)
    root = ElementTree.fromstring(
        domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    )
    v2 = cgroup.cpu_is_v2(cgroup_root)
    shares = model.DEFAULT_SHARES_V2 if v2 else model.DEFAULT_SHARES_V1
    unset = {
        cputune.PERIOD: ('period', DEFAULT_PERIOD_US),
        cputune.QUOTA: ('quota', -1),
        cputune.SHARES: ('shares', shares),
    }
    parameters = dict(now.parameters)
    for name, (element, default) in unset.items():
        value = int(root.findtext(f'./cputune/{element}') or default)
        if name == cputune.QUOTA and cputune.is_unlimited(value):
            # Keep the way this host reads "unlimited".
            old = parameters.get(name, value)
            value = old if cputune.is_unlimited(old) else model.UNLIMITED
        parameters[name] = value
    info = domain_xml.parse(ElementTree.tostring(root, 'unicode'))
    pin = info.cpuset or frozenset(range(now.host_cpus))
    pins = [pin] * len(now.vcpupins)
    for pinned in root.findall('./cputune/vcpupin'):
        vcpu = int(pinned.get('vcpu', '-1'))
        if 0 <= vcpu < len(pins):
            pins[vcpu] = cpus.parse_cpu_set(pinned.get('cpuset', ''))
    return dataclasses.replace(
        now, parameters=parameters, vcpupins=tuple(pins)
    )
