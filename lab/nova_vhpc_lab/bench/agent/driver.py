# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench agent``: cost of the agent's tick.

The agent's own sampler, controller, actuator and metrics run as on a host of
64 CPUs. Sleeping threads stand in for vCPUs, and libvirt's calls are only
counted. The peer is ``virConnectGetAllDomainStats`` on real QEMU guests, which
are started paused. Because vCPUs sleep on both sides, the figures are the cost
of sampling and do not depend on a workload.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any
from xml.etree import ElementTree

import libvirt

from nova_vhpc.agent import errors
from nova_vhpc_lab.bench.agent import measured
from nova_vhpc_lab.bench.common import cli_types, outputs, plugins
from nova_vhpc_lab.testbed import guest, image, libvirtd

HELP = 'Measure the cost of the agent per tick and VM, and of libvirt.'

TARGETS = (
    ('core_fraction', 0.05),
    ('tick_p99_ms', 20.0),
    ('rss_mib', 120.0),
    ('scrape_ms', 100.0),
)
SCALING_FIGURES = (
    'core_fraction',
    'tick_p99_ms',
    'us_per_vm',
    'rss_mib',
    'scrape_ms',
    'shift_p99_ms',
    'scraped_tick_p99_ms',
    'scraped_shift_p99_ms',
)
GROWTH_MIB = 2.0
LIBVIRT_ROUNDS = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    cli_types.add_integer(parser, '--vms', 100, 'VMs on the host')
    cli_types.add_integer(parser, '--vcpus', 8, 'vCPUs per VM')
    cli_types.add_seconds(
        parser, '--seconds', 15.0, 'length of one measurement'
    )
    parser.add_argument(
        '--scaling',
        action='store_true',
        help='also measure 50 and 400 VMs with --vcpus vCPUs each',
    )
    cli_types.add_seconds(
        parser,
        '--soak',
        0.0,
        'seconds to run once more and check that memory, threads and open '
        'files do not grow; 600 is thorough; 0: no such run',
        least=0.0,
    )
    cli_types.add_integer(
        parser,
        '--guests',
        10,
        'real guests that libvirt samples; 0: libvirt is not measured',
        least=0,
    )
    plugins.add_arguments(parser)
    outputs.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write the JSON file.

    :returns: 0; 1 if a measurement failed or the soak found growth; 2 if a
        plugin cannot be loaded.
    :raises OutputError: if the JSON file cannot be written.
    """
    outputs.check(args.json)
    try:
        names = plugins.selected(args)
        names.check()
        result = measure(args, names)
    except (
        errors.ConfigError,
        RuntimeError,
        OSError,
        libvirt.libvirtError,
        libvirtd.LibvirtdError,
        subprocess.SubprocessError,
    ) as error:
        print(f'nova-vhpc-bench agent: {error}', file=sys.stderr)
        return 2 if isinstance(error, errors.ConfigError) else 1
    _print(result)
    outputs.write_json(args.json, result)
    soak = result.get('soak')
    return 1 if soak and soak['grew'] else 0


def measure(
    args: argparse.Namespace, names: plugins.PluginNames
) -> dict[str, Any]:
    """Return all figures that the arguments ask for."""
    peer: dict[str, Any] = {'libvirt_us_per_vm': None}
    if args.guests > 0:
        # First, because a machine without libvirtd should fail at once.
        peer = libvirt_us_per_vm(args.guests, args.vcpus)
    result = _tick(args.vms, args.vcpus, args.seconds, names)
    result.update(peer)
    result['libvirt_ratio'] = (
        peer['libvirt_us_per_vm'] / result['us_per_vm']
        if args.guests > 0
        else None
    )
    if args.scaling:
        result['scaling'] = {}
        for vms in (50, 400):
            figures = _tick(vms, args.vcpus, args.seconds, names)
            result['scaling'][str(vms)] = {
                key: figures[key] for key in SCALING_FIGURES
            }
    if args.soak > 0:
        result['soak'] = _soak(args.vms, args.vcpus, args.soak, names)
    return result


def _tick(
    vms: int,
    vcpus: int,
    seconds: float,
    names: plugins.PluginNames,
    soak: bool = False,
) -> dict[str, Any]:
    """Measure in a new process, so that its memory is the agent's alone."""
    command = [
        *(sys.executable, '-m', measured.__name__, '--vms', str(vms)),
        *('--vcpus', str(vcpus), '--seconds', str(seconds), *names.argv()),
    ]
    process = subprocess.run(
        command + (['--soak'] if soak else []),
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds + 180,
        # Ctrl-C must reach this process only, which then ends the other.
        process_group=0,
    )
    if process.returncode != 0:
        raise RuntimeError(
            f'the measured process ended with {process.returncode}'
        )
    figures: dict[str, Any] = json.loads(process.stdout)
    return figures


def _soak(
    vms: int, vcpus: int, seconds: float, names: plugins.PluginNames
) -> dict[str, Any]:
    figures = _tick(vms, vcpus, seconds, names, soak=True)
    first, last = figures['first'], figures['last']
    return {
        'seconds': figures['seconds'],
        'first': first,
        'last': last,
        'grew': last['rss_mib'] > first['rss_mib'] + GROWTH_MIB
        or last['threads'] > first['threads']
        or last['files'] > first['files'],
    }


def libvirt_us_per_vm(guests: int, vcpus: int) -> dict[str, Any]:
    """Measure the same sampling by ``virConnectGetAllDomainStats``.

    :param guests: number of real guests.
    :param vcpus: number of vCPUs per guest.
    :returns: median wall-clock time of one call divided by the number of
        guests; it includes the time spent in libvirtd.
    """
    root = pathlib.Path(tempfile.mkdtemp(prefix='nv-bench-'))
    groups = (
        libvirt.VIR_DOMAIN_STATS_VCPU
        | libvirt.VIR_DOMAIN_STATS_INTERFACE
        | libvirt.VIR_DOMAIN_STATS_BLOCK
    )
    took_us: list[float] = []
    try:
        with libvirtd.PrivateLibvirtd(root) as daemon:
            daemon.clean_up_at_end('directory', str(root))
            connection = libvirt.open(daemon.uri)
            with contextlib.closing(connection):
                for number in range(guests):
                    connection.createXML(
                        _paused_guest(f'nv-bench-{number}', vcpus),
                        libvirt.VIR_DOMAIN_START_PAUSED,
                    )
                for _ in range(LIBVIRT_ROUNDS):
                    began = time.perf_counter()
                    stats = connection.getAllDomainStats(groups, 0)
                    took_us.append((time.perf_counter() - began) * 1e6)
                    if len(stats) != guests:
                        raise RuntimeError(
                            f'libvirt reported {len(stats)} of {guests} guests'
                        )
                    time.sleep(0.1)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {
        'libvirt_us_per_vm': statistics.median(took_us) / guests,
        'libvirt_guests': guests,
    }


def _paused_guest(name: str, vcpus: int) -> str:
    """Return the XML of a guest without a kernel, as it never runs."""
    no_image = image.GuestImage(pathlib.Path('/x'), pathlib.Path('/x'))
    root = ElementTree.fromstring(
        guest.domain_xml(name, no_image, vcpus=vcpus, memory_mib=32)
    )
    os_element = root.find('os')
    assert os_element is not None
    for tag in ('kernel', 'initrd', 'cmdline'):
        element = os_element.find(tag)
        if element is not None:
            os_element.remove(element)
    return ElementTree.tostring(root, 'unicode')


def _print(result: dict[str, Any]) -> None:
    print(
        f'{result["vms"]} VMs x {result["vcpus"]} vCPUs, '
        f'{result["ticks"]} ticks in {result["seconds"]} s, '
        f'{result["slice_policy"]} / {result["pinning_policy"]}'
        + (f' / {result["predictor"]}' if result['follows_io'] else '')
    )
    for key, target in TARGETS:
        print(f'  {key:<18}{result[key]:>10.3f}   (target: <= {target:g})')
    print(f'  {"us_per_vm":<18}{result["us_per_vm"]:>10.1f}')
    if result['libvirt_us_per_vm'] is not None:
        print(
            f'  {"libvirt_us_per_vm":<18}{result["libvirt_us_per_vm"]:>10.1f}'
            f'   ({result["libvirt_ratio"]:.1f} times ours; target: >= 10)'
        )
    for vms, values in result.get('scaling', {}).items():
        print(
            f'  {vms} VMs: {values["us_per_vm"]:.1f} us per VM, '
            f'{values["core_fraction"]:.3f} of a core, '
            f'{values["rss_mib"]} MiB, scrape '
            f'{values["scrape_ms"]:.1f} ms of a core'
        )
    soak = result.get('soak')
    if soak:
        print(
            f'  soak of {soak["seconds"]} s: {soak["first"]} -> '
            f'{soak["last"]}: {"GREW" if soak["grew"] else "no growth"}'
        )
