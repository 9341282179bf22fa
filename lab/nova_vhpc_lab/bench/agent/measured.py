# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The measured process of ``nova-vhpc-bench agent``.

It runs the agent's tick with the real sampler, controller, actuator and
metrics on the stand-in VMs of :mod:`nova_vhpc_lab.bench.agent.load`. libvirt's
calls are only counted. The figures are printed as one JSON document.
"""

import argparse
import array
import contextlib
import dataclasses
import gc
import itertools
import json
import os
import pathlib
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_vhpc.agent import process_limits
from nova_vhpc.agent.actuators import libvirt_cputune
from nova_vhpc.agent.daemon import (
    controller_factory,
    options,
    service,
    tick,
)
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.lifecycle import adoption
from nova_vhpc.agent.metrics import endpoint, host_metrics, vm_metrics
from nova_vhpc.agent.probes import base, sampler
from nova_vhpc.flavor import extra_specs
from nova_vhpc.linux import qemu_process
from nova_vhpc_lab.bench import controller
from nova_vhpc_lab.bench.agent.load import Load, StartError, Traffic
from nova_vhpc_lab.bench.common import plugins

WORKLOADS = ('parallel', 'parallel', 'latency', 'general')
SETTLE_S = 2.0
SCRAPES = 40
SCRAPE_PAUSE_S = 0.13


class CountingDomain:
    """Counts the calls that a libvirt domain would get."""

    def __init__(self) -> None:
        self.calls = 0

    def setSchedulerParametersFlags(
        self, parameters: Mapping[str, int], flags: int
    ) -> None:
        """Count a call of virDomain's method of this name."""
        self.calls += 1

    def pinVcpuFlags(
        self, vcpu: int, cpumap: tuple[bool, ...], flags: int
    ) -> None:
        """Count a call of virDomain's method of this name."""
        self.calls += 1


class DirectManager:
    """A guest manager that calls the real actuator in the tick's thread.

    The agent hands writes to worker threads, which costs about as much.
    """

    def __init__(self, conf: Any, load: Load) -> None:
        agent_options = conf.vhpc_agent
        self.actuator = libvirt_cputune.LibvirtCputuneActuator(conf)
        self.domain = CountingDomain()
        processes = qemu_process.make_processes(conf)
        self.sampler = sampler.make_sampler(
            conf,
            base.Host(
                agent_options.proc_root,
                agent_options.sys_root,
                agent_options.cgroup_root,
            ),
            controller_factory.follows_io(conf),
        )
        self.usable = frozenset(cpu.id for cpu in controller.HOST)
        self.other_sync_ticks = agent_options.other_sync_ticks
        self.guests: dict[str, Guest] = {}
        for number, pid in enumerate(load.pids):
            guest = self._guest(number, pid, load.vcpus, processes)
            self.guests[guest.uuid] = guest

    def write(self, guest: Guest, tune: Any) -> None:
        """Write to a guest before returning."""
        self.actuator.write(guest, tune)
        guest.succeeded()

    def enqueue(self, uuid: str) -> None:
        """Do nothing: these domains never change."""

    def _guest(
        self,
        number: int,
        pid: int,
        vcpus: int,
        processes: qemu_process.Processes,
    ) -> Guest:
        tids = processes.vcpu_threads(pid, range(vcpus))
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
        tune = cputune.Cputune(
            {
                cputune.SHARES: 1024,
                cputune.PERIOD: 100_000,
                cputune.QUOTA: -1,
            },
            (self.usable,) * vcpus,
            self.usable,
            len(self.usable),
        )
        reader = self.sampler.attach(
            base.Target(info.uuid, info.name, pid, tids, taps=info.taps),
            adoption.sync_every(info, self.other_sync_ticks),
        )
        return Guest(
            info=info,
            domain=self.domain,
            domain_id=number,
            identity=qemu_process.Identity('', pid, 0, number),
            original=tune,
            expected=tune,
            reader=reader,
            tids=tids,
            allowed_cpus=self.usable,
        )


def usage() -> dict[str, float]:
    """Return this process's memory, threads and open files."""
    text = pathlib.Path('/proc/self/status').read_text()
    rss = next(
        int(line.split()[1])
        for line in text.splitlines()
        if line.startswith('VmRSS')
    )
    return {
        'rss_mib': round(rss / 1024, 1),
        'threads': threading.active_count(),
        # The least of five readings: the tick opens files for a moment.
        'files': min(len(os.listdir('/proc/self/fd')) for _ in range(5)),
    }


def measure(
    load: Load,
    seconds: float,
    soak: bool,
    names: plugins.PluginNames,
) -> dict[str, Any]:
    """Run the tick and return its cost.

    If the policies use I/O events, traffic is generated.

    :param seconds: length of the measurement, in seconds.
    :param soak: whether to compare usage before and after; usage counts from
        10 seconds (at most a third of ``seconds``) after the start.
    :raises ConfigError: if a plugin cannot be loaded.
    """
    conf = options.make_conf(['--config-file', os.devnull])
    for option, name in dataclasses.asdict(names).items():
        conf.set_override(option, name, controller_factory.GROUP)
    process_limits.raise_file_limit()
    manager = DirectManager(conf, load)
    # A list of floats would look like a leak in a soak.
    took_us = array.array('d')
    ticker: tick.TickLoop

    def pause() -> None:
        ticker.idle.wait(service.METRICS_PAUSE_S)

    served = endpoint.Metrics(
        host_metrics.HostCollector(lambda: {'agent': {}}, pause=pause),
        vm_metrics.VmMetrics(
            lambda: manager.guests, lambda: ticker.last, pause=pause
        ).text,
    )
    begun_us = array.array('d')
    ticker = tick.TickLoop(
        conf.vhpc_agent.period_ms * 1000,
        lambda: controller.HOST,
        manager.actuator.limits,
        manager,
        controller_factory.make_controller(conf, controller.HOST),
        lambda guest: None,
        lambda: {},
        (
            served.observe,
            lambda result: took_us.append(result.took_us),
            lambda result: begun_us.append(result.view.now_us),
        ),
    )
    follows_io = controller_factory.follows_io(conf)
    traffic = Traffic() if follows_io else contextlib.nullcontext()
    process_limits.settle_memory()
    with traffic:
        ticker.start()
        time.sleep(SETTLE_S)
        first = usage()
        del took_us[:], begun_us[:]
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
        ordered = sorted(took_us)
        shift_us = _shift_us(begun_us)
        del took_us[:], begun_us[:]
        scrape_ms = _scrape_ms(served)
        ticker.stop()
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
        'tick_p99_ms': _p99(ordered) / 1000,
        'tick_max_ms': ordered[-1] / 1000,
        'shift_p99_ms': shift_us / 1000,
        'scrape_ms': statistics.median(scrape_ms),
        'scraped_tick_p99_ms': _p99(took_us) / 1000,
        'scraped_shift_p99_ms': _shift_us(begun_us) / 1000,
        'us_per_vm': cpu * 1e6 / ticks / load.vms,
        'writes': manager.domain.calls,
        'rss_mib': last['rss_mib'],
        'first': first,
        'last': last,
    }


def _p99(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[int(len(ordered) * 0.99)]


def _shift_us(begun_us: Sequence[float]) -> float:
    """Return by how much ticks begin too late or early, in microseconds.

    :param begun_us: when each tick began.
    :returns: 99th percentile, against evenly spread ticks.
    """
    gaps = [later - earlier for earlier, later in itertools.pairwise(begun_us)]
    period_us = statistics.median(gaps)
    return _p99(abs(gap - period_us) for gap in gaps)


def _scrape_ms(served: endpoint.Metrics) -> list[float]:
    """Return the CPU time of each scrape, in milliseconds.

    As by Prometheus, with compression; it would scrape much less often.
    """
    scrape_ms = []
    environ = {
        'REQUEST_METHOD': 'GET',
        'PATH_INFO': '/metrics',
        'HTTP_ACCEPT_ENCODING': 'gzip',
    }
    for _ in range(SCRAPES):
        began = time.thread_time()
        served.answer(environ, lambda *_: None)
        scrape_ms.append((time.thread_time() - began) * 1000)
        time.sleep(SCRAPE_PAUSE_S)
    return scrape_ms


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--vms', type=int, required=True)
    parser.add_argument('--vcpus', type=int, required=True)
    parser.add_argument('--seconds', type=float, required=True)
    parser.add_argument('--soak', action='store_true')
    plugins.add_arguments(parser)
    args = parser.parse_args(argv)
    try:
        with Load(args.vms, args.vcpus) as load:
            figures = measure(
                load, args.seconds, args.soak, plugins.selected(args)
            )
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
