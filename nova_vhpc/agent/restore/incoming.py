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

"""What a VM brings along from another run: its copy of the journal.

By live migration, or back from disk after a managed save. What is in force
is partly ours; the copy says what was there before.
"""

import contextlib
import io
import xml.etree.ElementTree as ElementTree

from nova_vhpc.agent.journal import domain_metadata, store
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.control import model
from nova_vhpc.linux import cpus

_ELEMENTS = {
    cputune.SHARES: 'shares',
    cputune.PERIOD: 'period',
    cputune.QUOTA: 'quota',
}
_ALL_BUT_PINS = frozenset({cputune.PERIOD, cputune.QUOTA, cputune.SHARES})


def not_ours(copy: store.JournalRecord) -> frozenset[str]:
    """What is to be left as it came.

    :returns: names as of :func:`.cputune_restore.restore`.
    """
    left = copy.released
    if copy.settled:
        left |= _ALL_BUT_PINS
    if not copy.repin and not copy.floats:
        # Never pinned by us. Nova gives guests with dedicated CPUs or NUMA
        # nodes other CPUs on another host, which are in force already.
        left |= {cputune.PINS}
    return left


def pins(
    copy: store.JournalRecord,
    cpuset: frozenset[int] | None,
    here: frozenset[int],
) -> tuple[frozenset[int] | None, ...]:
    """The VM's own pins in terms of this host's CPUs, for each vCPU.

    :param cpuset: of its ``<vcpu>``, which Nova writes for each host.
    :param here: this host's CPUs.
    :returns: None where it may use whatever Nova gives to guests.
    """
    everywhere = frozenset(range(copy.original.host_cpus))
    return tuple(
        None
        if copy.floats
        or pin == everywhere
        or cpuset is not None
        or not pin & here
        else pin & here
        for pin in copy.original.vcpupins
    )


def without_us(xml: str, here: frozenset[int]) -> str | None:
    """The XML of a VM that is about to come here, as Nova has made it.

    Unlike a call of libvirt's it can take out elements. So a VM that was
    pinned can come to a host that lacks some of those CPUs.

    :param xml: as libvirt gives it to a hook.
    :param here: CPUs that are online.
    :returns: None where nothing is to be changed.
    :raises ValueError: it is no domain's XML.
    :raises journal.JournalError: a newer agent's copy, or a torn one.
    """
    info = domain_xml.parse(xml)
    _keep_prefixes(xml)
    root = ElementTree.fromstring(xml)
    metadata, tune = root.find('./metadata'), root.find('./cputune')
    found = root.find(f'./metadata/{{{domain_metadata.URI}}}journal')
    if metadata is None or found is None:
        if tune is None or not _left_over(info, tune, here):
            return None
        for element in tune.findall('./vcpupin'):
            tune.remove(element)
        return ElementTree.tostring(root, 'unicode')
    copy = store.JournalRecord.from_json(
        found.text or '', f'metadata of {info.name}'
    )
    if tune is not None:
        left = not_ours(copy)
        _put_parameters_back(tune, copy, left)
        _put_pins_back(tune, pins(copy, info.cpuset, here), left)
    metadata.remove(found)
    return ElementTree.tostring(root, 'unicode')


def _keep_prefixes(xml: str) -> None:
    """Have namespaces called as they are: people compare domains' XML."""
    for _, (prefix, uri) in ElementTree.iterparse(
        io.StringIO(xml), ['start-ns']
    ):
        # Those of the library's own making it does not take.
        with contextlib.suppress(ValueError):
            if prefix:
                ElementTree.register_namespace(prefix, uri)


def _left_over(
    info: domain_xml.DomainInfo,
    tune: ElementTree.Element,
    here: frozenset[int],
) -> bool:
    """Whether these pins can but be what an agent that was stopped has left.

    Its VMs float over all CPUs that Nova gives to guests on the source. Here
    that would fail, or take CPUs that Nova gives to others.
    """
    found = {
        cpus.parse_cpu_set(element.get('cpuset', ''))
        for element in tune.findall('./vcpupin')
    }
    return (
        info.ours
        and not info.placed
        and len(found) == 1
        and not found.pop() <= (info.cpuset or here)
    )


def _put_parameters_back(
    tune: ElementTree.Element, copy: store.JournalRecord, left: frozenset[str]
) -> None:
    original = copy.original.parameters
    for name, tag in _ELEMENTS.items():
        element = tune.find(tag)
        if element is None or name in left or name not in original:
            continue
        value = original[name]
        if name == cputune.QUOTA and cputune.is_unlimited(value):
            value = model.UNLIMITED
        element.text = str(value)


def _put_pins_back(
    tune: ElementTree.Element,
    wanted: tuple[frozenset[int] | None, ...],
    left: frozenset[str],
) -> None:
    for element in tune.findall('./vcpupin'):
        vcpu = int(element.get('vcpu', '-1'))
        if not left.isdisjoint((cputune.PINS, cputune.pin_name(vcpu))):
            continue
        pin = wanted[vcpu] if 0 <= vcpu < len(wanted) else None
        if pin is None:
            tune.remove(element)
        else:
            element.set('cpuset', cpus.format_cpu_set(pin))
