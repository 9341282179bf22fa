# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Give damaged inputs to parsers, which may raise only what they document."""

import contextlib
import io
import math
import pathlib
import random
import tempfile
import types
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from rich import console

from nova_vhpc.agent import errors
from nova_vhpc.agent.clusters import groups, messages
from nova_vhpc.agent.rpc import control
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.cli import agents, ctl
from nova_vhpc.conf import opts
from nova_vhpc.conf import types as conf_types
from nova_vhpc.explain import request, request_file
from nova_vhpc.flavor import extra_specs
from nova_vhpc.linux import cpus
from nova_vhpc.top import model, reader, report, sources
from nova_vhpc.topology import bridge_rules
from nova_vhpc_lab.bench.common import traces
from nova_vhpc_lab.soak import (
    cloud_answers,
    damage,
    encap_ip_records,
    kernel_files,
    records,
)

MESSAGE = {
    **{'cluster': 'c', 'host': 'h1', 'boot': 5, 'seq': 7, 'phase': 'io'},
    **{'lease_ms': 1000, 'min_slice_us': 3000},
}
REQUEST = {
    'flavor': {
        **{'name': 'f', 'vcpus': 4, 'ram_mb': 64},
        'extra_specs': {'vhpc:network': 'separate', 'vhpc:paradigm': 'mpi'},
    },
    'members': 3,
    'hosts': [{'name': 'h1', 'cpus': 8, 'free_ram_mb': 1000}],
    'options': {'spare_cpus': 0},
}
OPTIONS = tuple(
    option for _, options in opts.list_opts() for option in options
)
GROUPS = 'weather:\n- 10000000-0000-4000-8000-000000000001\n- b\nocean: [c]\n'
VM = {
    **{'uuid': 'u', 'name': 'n', 'workload': 'parallel', 'cluster': 'c'},
    **{'phase': 'io', 'slice_us': 3, 'reason': '', 'remarks': []},
    **{'period_us': 5, 'quota_us': 4, 'shares': 3, 'vcpu_pins': ['0']},
    **{'sync_latency_us': 3.0, 'io_events': 4, 'run_us': 5.0, 'writes': 3},
    **{'released': [], 'hands_off': '', 'problem': ''},
    **{'server_name': 's', 'vcpus': 1, 'received': 0.9, 'moves': 0},
}
PART = {
    **{'state': 'degraded', 'healthy': False, 'since': 0.0},
    **{'what': 'no broker', 'action': 'start it'},
}
ORDERS = tuple(model.Order)
STATUS = {
    'agent': {
        **{'host': 'h', 'cpus': '0-1', 'tick_us': 5, 'period_us': 100_000},
        **{'overruns': 0, 'dry_run': False, 'paused': False, 'remarks': []},
        **{'libvirt_up': True, 'refused': {'u': 'reason'}},
    },
    'health': {'healthy': False, 'parts': {'peers': PART}},
    'vms': [VM],
    'windows': {'playing': True, 'turns': [{'width_us': 5}]},
    'peers': {
        **{'state': 'up', 'echo_us': 5, 'detail': ''},
        'clusters': {
            'c': {'phase': 'io', 'own': 'io', 'hosts': {'h2': {'phase': 'io'}}}
        },
    },
    'publishing': {'state': 'fresh', 'age_s': 3, 'problems': []},
}
OUTCOME = {'restored': ['u'], 'resumed': ['u'], 'failed': {'v': 'busy'}}
SPECS = (
    *('separate', 'exported', '1', '2', 'mpi', '1.0', '0', '4294967296'),
    *('-1', 'parallel', 'host', 'auto'),
)


def bus_message(rng: random.Random) -> None:
    """Decode a message of another host."""
    fields = damage.document(rng, MESSAGE)
    if not isinstance(fields, dict):
        return
    with contextlib.suppress(KeyError, TypeError, ValueError):
        messages.decode_phase(fields)


class _Control:
    """An agent that only checks what the endpoint lets through."""

    def status(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def pause(self, wait_s: float) -> dict[str, Any]:
        """Check the time to wait."""
        return self.restore(None, wait_s)

    def resume(self, server: Any) -> dict[str, Any]:
        """Return the server."""
        return self.restore(server, 0.0)

    def restore(self, server: Any, wait_s: float) -> dict[str, Any]:
        """Check the arguments."""
        if not 0.0 <= wait_s <= control.MAX_WAIT_S:
            raise AssertionError(f'a wait of {wait_s} s was accepted')
        if server is not None and not isinstance(server, str):
            raise AssertionError(f'server {server!r} was accepted')
        return {}


def control_call(rng: random.Random) -> None:
    """Call an agent's control interface with arguments of any kind."""
    names = rng.choices(('server', 'wait_s'), k=rng.randint(0, 2))
    method = rng.choice(('status', 'pause', 'resume', 'restore'))
    allowed = {'pause': ('wait_s',), 'resume': ('server',), 'status': ()}
    arguments = {
        name: damage.value(rng)
        for name in names
        if name in allowed.get(method, names)
    }
    dispatcher = messaging.RPCDispatcher(
        [control._Endpoint(_Control())],
        messaging.NoOpSerializer(),
        messaging.DefaultRPCAccessPolicy,
    )
    message = {
        **{'method': method, 'args': arguments, 'version': control.VERSION},
        'namespace': control.NAMESPACE,
    }
    answer = dispatcher.dispatch(
        types.SimpleNamespace(ctxt={}, message=message, client_timeout=None)
    )
    if 'AssertionError' in answer.get('error', ''):
        raise AssertionError(answer['error'])


def option_value(rng: random.Random) -> None:
    """Convert an option's value, as oslo.config does."""
    option = rng.choice(OPTIONS)
    given = str(damage.value(rng))
    if rng.random() < 0.4 and option.default is not None:
        given = damage.characters(rng, str(option.default))
    try:
        value = option.type(given)
    except ValueError:
        return
    ours = isinstance(option.type, conf_types.Finite)
    if ours and not math.isfinite(value):
        raise AssertionError(f'{option.name} = {given!r} gives {value}')


def groups_file(rng: random.Random) -> None:
    """Read the file of virtual clusters without server groups."""
    with contextlib.suppress(ValueError, RecursionError, yaml.YAMLError):
        groups.read_file(yaml.safe_load(damage.characters(rng, GROUPS)))


def status_in_top(rng: random.Random) -> None:
    """Show an agent's status document in nova-vhpc-top."""
    document = damage.document(rng, STATUS)
    with contextlib.suppress(*errors.UNREADABLE):
        snapshot = reader.snapshot(sources.Answers({'h': document}))
        out = console.Console(file=io.StringIO(), width=160)
        clusters = model.group(snapshot.servers, rng.choice(ORDERS))
        for line in report.report(snapshot, clusters, out.width):
            out.print(line)
        for cluster in clusters:
            for row in (cluster, *cluster.servers):
                report.detail(row)


def status_in_ctl(rng: random.Random) -> None:
    """Show an agent's answers in nova-vhpc-ctl."""
    answers = {'h': damage.document(rng, STATUS)}
    with contextlib.suppress(*errors.UNREADABLE):
        ctl.describe('h', answers['h'])
    agents.member_states(answers)
    answers = {'h': damage.document(rng, OUTCOME)}
    with contextlib.suppress(*errors.UNREADABLE):
        control.find_failures(
            rng.choice(('pause', 'resume', 'restore')),
            rng.choice((None, 'u')),
            answers,
        )


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


def explain_request(rng: random.Random) -> None:
    """Read a REQUEST.json of nova-vhpc-explain."""
    with contextlib.suppress(request.RequestError):
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
        *(records.journal_record, records.domain),
        *(records.metadata_copy, records.libvirt_hook),
        encap_ip_records.encap_ip_record,
        *(kernel_files.processes, kernel_files.probes),
        *(kernel_files.cpu_lists, kernel_files.bridges),
        *(bus_message, control_call, cpu_set, bridge_rule, option_value),
        *(groups_file, flavor_specs),
        *(cloud_answers.placement_answer, cloud_answers.memberships),
        *(cloud_answers.explained_cloud, cloud_answers.vendordata),
        cloud_answers.simulated_cloud,
        *(explain_request, status_in_top, status_in_ctl, trace),
    )
}
