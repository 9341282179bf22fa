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

"""The measured process of ``nova-vhpc-bench agent``: an agent's tick.

The real sampler, controller, actuator and metrics; the stand-ins of
:mod:`nova_vhpc.bench.agent.load` for VMs; and a recorder for libvirt.
Prints one JSON document.
"""

import argparse
import array
import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent import process_limits
from nova_vhpc.agent.actuators import libvirt_cputune
from nova_vhpc.agent.daemon import (
    controller_factory,
    metrics,
    options,
    status,
    tick,
)
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.lifecycle import adoption
from nova_vhpc.agent.probes import base, sampler
from nova_vhpc.bench import controller
from nova_vhpc.bench.agent import load as agent_load
from nova_vhpc.bench.common import plugins
from nova_vhpc.flavor import extra_specs
from nova_vhpc.linux import qemu_process

WORKLOADS = ('parallel', 'parallel', 'latency', 'general')
SETTLE_S = 2.0


class Recorder:
    """Takes the calls that libvirt would get, and counts them."""

    def __init__(self) -> None:
        self.calls = 0

    def setSchedulerParametersFlags(
        self, parameters: Mapping[str, int], flags: int
    ) -> None:
        """As of virDomain."""
        self.calls += 1

    def pinVcpuFlags(
        self, vcpu: int, cpumap: tuple[bool, ...], flags: int
    ) -> None:
        """As of virDomain."""
        self.calls += 1


class RecordingWriter:
    """Stands where ``GuestManager`` is: hands writes to the real actuator."""

    def __init__(self, conf: Any, load: agent_load.Load) -> None:
        agent_options = conf.vhpc_agent
        self.actuator = libvirt_cputune.LibvirtCputuneActuator(conf)
        self.recorder = Recorder()
        host = qemu_process.make_processes(conf)
        self.sampler = sampler.make_sampler(
            conf,
            base.Host(
                agent_options.proc_root,
                agent_options.sys_root,
                agent_options.cgroup_root,
                agent_options.period_ms / 1000,
            ),
            controller_factory.follows_io(conf),
        )
        self.usable = frozenset(cpu.id for cpu in controller.HOST)
        self.other_sync_ticks = agent_options.other_sync_ticks
        self.guests: dict[str, guest.Guest] = {}
        for number, pid in enumerate(load.pids):
            target = self._guest(number, pid, load.vcpus, host)
            self.guests[target.uuid] = target

    def write(
        self, target: guest.Guest, tune: Any, slice_us: int | None = None
    ) -> None:
        """Write at once; a worker's hand-over costs about as much."""
        self.actuator.write(target, tune, slice_us)
        target.succeeded()

    def enqueue(self, uuid: str) -> None:
        """No domain ever ends here."""

    def _guest(
        self, number: int, pid: int, vcpus: int, host: qemu_process.Processes
    ) -> guest.Guest:
        tids = host.vcpu_threads(pid, vcpus)
        if len(tids) != vcpus:
            raise RuntimeError(f'process {pid}: {len(tids)} vCPU threads')
        specs = {'vhpc:workload': WORKLOADS[number % len(WORKLOADS)]}
        info = domain_xml.DomainInfo(
            uuid=str(uuid.uuid4()),
            name=f'instance-{number:08x}',
            vcpus=vcpus,
            nova=True,
            flavor_specs=specs,
            specs=extra_specs.parse(specs),
            repin=True,
            taps=('lo',),
        )
        everywhere = self.usable
        tune = cputune.Cputune(
            {
                cputune.SHARES: 1024,
                cputune.PERIOD: 100_000,
                cputune.QUOTA: -1,
            },
            (everywhere,) * vcpus,
            everywhere,
            len(everywhere),
        )
        reader = self.sampler.attach(
            base.Target(info.uuid, info.name, pid, tids, taps=info.taps),
            adoption.sync_every(info, self.other_sync_ticks),
        )
        return guest.Guest(
            info=info,
            domain=self.recorder,
            domain_id=number,
            identity=qemu_process.Identity('', pid, 0, number),
            original=tune,
            expected=tune,
            reader=reader,
            tids=tids,
            allowed_cpus=self.usable,
        )


def usage() -> dict[str, float]:
    """What this process holds now."""
    text = pathlib.Path('/proc/self/status').read_text()
    rss = next(
        int(line.split()[1])
        for line in text.splitlines()
        if line.startswith('VmRSS')
    )
    return {
        'rss_mib': round(rss / 1024, 1),
        'threads': threading.active_count(),
        # The tick opens some for a result.
        'files': min(len(os.listdir('/proc/self/fd')) for _ in range(5)),
    }


def measure(
    load: agent_load.Load,
    seconds: float,
    soak: bool,
    names: plugins.PluginNames,
) -> dict[str, Any]:
    """Tick for a while and say what it cost.

    Where policies follow I/O there is some to be followed.

    :raises ConfigError: if there is no such plugin.
    """
    conf = options.make_conf(['--config-file', os.devnull])
    for option, name in dataclasses.asdict(names).items():
        conf.set_override(option, name, controller_factory.GROUP)
    process_limits.raise_file_limit()
    writer = RecordingWriter(conf, load)
    # Not a list: in a soak its floats would look like growth.
    took_us = array.array('d')
    ticker: tick.TickLoop

    def document() -> dict[str, Any]:
        return {'agent': {}, 'vms': status.guest_statuses(writer.guests, None)}

    histogram = metrics.Metrics(document)
    ticker = tick.TickLoop(
        conf.vhpc_agent.period_ms * 1000,
        lambda: controller.HOST,
        writer.actuator.limits(),
        writer,
        controller_factory.make_controller(conf, controller.HOST),
        lambda target: None,
        lambda: {},
        (histogram.observe, lambda result: took_us.append(result.took_us)),
    )
    follows_io = controller_factory.follows_io(conf)
    traffic = agent_load.Traffic() if follows_io else contextlib.nullcontext()
    process_limits.settle_memory()
    with traffic:
        ticker.start()
        time.sleep(SETTLE_S)
        first = usage()
        del took_us[:]
        ticks, cpu = ticker.ticks, time.process_time()
        began = time.monotonic()
        if soak:
            time.sleep(min(10.0, seconds / 3))
            gc.collect()
            first = usage()
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        elapsed = time.monotonic() - began
        cpu, ticks = time.process_time() - cpu, ticker.ticks - ticks
        gc.collect()
        last = usage()
        ticker.stop()
    ordered = sorted(took_us)
    return {
        **dataclasses.asdict(names),
        'follows_io': follows_io,
        'vms': load.vms,
        'vcpus': load.vcpus,
        'seconds': round(elapsed, 1),
        'ticks': ticks,
        'overruns': ticker.overruns,
        'tick_failures': ticker.failures,
        'core_fraction': cpu / elapsed,
        'tick_p50_ms': statistics.median(ordered) / 1000,
        'tick_p99_ms': ordered[int(len(ordered) * 0.99)] / 1000,
        'tick_max_ms': ordered[-1] / 1000,
        'us_per_vm': cpu * 1e6 / ticks / load.vms,
        'writes': writer.recorder.calls,
        'rss_mib': last['rss_mib'],
        'first': first,
        'last': last,
    }


def main(argv: list[str] | None = None) -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--vms', type=int, required=True)
    parser.add_argument('--vcpus', type=int, required=True)
    parser.add_argument('--seconds', type=float, required=True)
    parser.add_argument('--soak', action='store_true')
    plugins.add_arguments(parser)
    args = parser.parse_args(argv)
    try:
        with agent_load.Load(args.vms, args.vcpus) as load:
            figures = measure(
                load, args.seconds, args.soak, plugins.selected(args)
            )
    except agent_load.StartError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
