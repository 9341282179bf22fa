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

"""Give damaged inputs to parsers, which may raise only what they document."""

import contextlib
import json
import pathlib
import random
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from nova_vhpc.agent.clusters import bus
from nova_vhpc.agent.journal import record
from nova_vhpc.agent.libvirt import cputune, domain_xml, interfaces
from nova_vhpc.agent.uplinks import bindings
from nova_vhpc.bench.common import traces
from nova_vhpc.explain import request_file
from nova_vhpc.flavor import extra_specs
from nova_vhpc.linux import cpus, qemu_process
from nova_vhpc.scheduler.sources import snapshot
from nova_vhpc.tests.soak import damage
from nova_vhpc.topology import bridge_rules, model

IDENTITY = qemu_process.Identity('boot', 12, 34, 5)
RECORD = record.JournalRecord(
    'u-1',
    'instance-1',
    IDENTITY,
    cputune.Cputune(
        {'vcpu_period': 100000, 'vcpu_quota': -1, 'cpu_shares': 1024},
        (frozenset({0, 1}), frozenset({0, 1})),
        frozenset({0, 1}),
        2,
    ),
    written={'vcpu_period': frozenset({8000}), 'cpu_shares': None},
)
BINDING = bindings.Binding('u-1', IDENTITY, {'52:54:00:00:00:01': ('a', 'b')})
XML = """<domain type='kvm' id='3'><name>instance-1</name><uuid>u-1</uuid>
<metadata><nova:instance
 xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
<nova:owner><nova:project uuid="p"/></nova:owner><nova:flavor name="f">
<nova:extraSpecs><nova:extraSpec name="vhpc:workload">parallel</nova:extraSpec>
<nova:extraSpec name="hw:cpu_policy">shared</nova:extraSpec></nova:extraSpecs>
</nova:flavor></nova:instance></metadata>
<vcpu placement='static' cpuset='0-1' current='2'>4</vcpu>
<cputune><shares>20</shares><vcpupin vcpu='0' cpuset='0'/></cputune>
<devices><interface type='bridge'><mac address='52:54:00:00:00:01'/>
<source bridge='br0'/><target dev='tap0'/></interface>
<disk><target dev='vda'/></disk></devices></domain>"""
MESSAGE = {
    **{'cluster': 'c', 'host': 'h1', 'boot': 5, 'seq': 7, 'phase': 'io'},
    **{'lease_ms': 1000, 'min_slice_us': 3000},
}
UPLINK = {
    model.UPLINK: {'capacity': 1, 'used': 0},
    model.MBPS: {'capacity': 1000, 'used': 0},
}
PLACEMENT = {
    'provider_summaries': {
        'r': {
            'resources': {'VCPU': {'capacity': 8, 'used': 1}},
            **{'traits': [], 'root_provider_uuid': 'r'},
        },
        'm': {
            'resources': {model.STAMP: {'capacity': 29000000, 'used': 0}},
            **{'traits': [], 'root_provider_uuid': 'r'},
        },
        'u': {
            'resources': UPLINK,
            **{'traits': [model.TRAIT_SEPARATE], 'root_provider_uuid': 'r'},
        },
    }
}
REQUEST = {
    'flavor': {
        **{'name': 'f', 'vcpus': 4, 'ram_mb': 64},
        'extra_specs': {'vhpc:network': 'separate', 'vhpc:paradigm': 'mpi'},
    },
    'members': 3,
    'hosts': [{'name': 'h1', 'vcpus': 8, 'ram_mb': 1000}],
    'options': {'spare_cpus': 0},
}
SPECS = (
    *('separate', 'exported', '1', '2', 'mpi', '1.0', '0', '4294967296'),
    *('-1', 'parallel', 'host', 'auto'),
)


def journal_record(rng: random.Random) -> None:
    """Read a journal record, and write again what was accepted."""
    _read_and_write(rng, RECORD)


def uplink_binding(rng: random.Random) -> None:
    """Read a record of moved NICs, and write again what was accepted."""
    _read_and_write(rng, BINDING)


def _read_and_write(
    rng: random.Random, valid: record.JournalRecord | bindings.Binding
) -> None:
    source = json.loads(valid.to_json())
    # Without its checksum, as of an old agent, more of the faults get through.
    if rng.random() < 0.7:
        del source[record.CHECKSUM_KEY]
    try:
        accepted = valid.from_json(damage.encoded(rng, source), 'soak')
    except record.JournalError:
        return
    valid.from_json(accepted.to_json(), 'soak')


def domain(rng: random.Random) -> None:
    """Parse a domain's XML."""
    xml = damage.characters(rng, XML)
    for parse in (domain_xml.parse, interfaces.read):
        with contextlib.suppress(ValueError):
            parse(xml)


def bus_message(rng: random.Random) -> None:
    """Decode a message of another host."""
    fields = damage.document(rng, MESSAGE)
    if not isinstance(fields, dict):
        return
    with contextlib.suppress(KeyError, TypeError, ValueError):
        bus.decode(fields)


def cpu_set(rng: random.Random) -> None:
    """Parse a CPU set."""
    try:
        numbers = cpus.parse_cpu_set(damage.characters(rng, '0-3,^2,8'))
    except ValueError:
        return
    if len(numbers) > cpus.MOST_CPUS:
        raise AssertionError(f'{len(numbers)} CPUs were accepted')


def bridge_rule(rng: random.Random) -> None:
    """Parse an entry of the option ``bridges``."""
    valid = 'br*:shared:slots=2:mbps=100:physnet=p:nic=eth0'
    with contextlib.suppress(ValueError):
        bridge_rules.parse_rules([damage.characters(rng, valid)])


def flavor_specs(rng: random.Random) -> None:
    """Parse a flavor's extra specs: never an exception."""
    names = [key.full_name for key in extra_specs.KEYS]
    extra_specs.parse(
        {
            rng.choice([*names, 'vhpc:', damage.text(rng, 12)]): rng.choice(
                [rng.choice(SPECS), str(damage.value(rng))]
            )
            for _ in range(rng.randint(0, 6))
        }
    )


def placement_answer(rng: random.Random) -> None:
    """Parse Placement's answer to the bulk read."""
    body: Any = damage.document(rng, PLACEMENT)
    with contextlib.suppress(
        AttributeError, KeyError, OverflowError, TypeError, ValueError
    ):
        snapshot.parse(body, {})


def explain_request(rng: random.Random) -> None:
    """Read a REQUEST.json of nova-vhpc-explain."""
    with contextlib.suppress(request_file.RequestError):
        request_file.read(damage.document(rng, REQUEST), now_s=1e9)


def trace(rng: random.Random) -> None:
    """Read a trace of I/O events."""
    content = damage.characters(rng, 'a,b\n1,2\n3,4\n5,6\n')
    with tempfile.NamedTemporaryFile(suffix='.csv', dir='/dev/shm') as file:
        path = pathlib.Path(file.name)
        path.write_bytes(content.encode(errors='surrogatepass'))
        for read in (traces.read, traces.read_gapped):
            with contextlib.suppress(traces.TraceError):
                read(path)


PARSERS: Mapping[str, Callable[[random.Random], None]] = {
    parser.__name__: parser
    for parser in (
        *(journal_record, uplink_binding, domain, bus_message, cpu_set),
        *(bridge_rule, flavor_specs, placement_answer, explain_request),
        trace,
    )
}
