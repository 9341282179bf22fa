# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``nova-vhpc-bench lab``: compare all policies on real guests.

The benchmark starts real libvirt guests with workloads of its own, and
measures stock Linux, the policies of the papers and the default policy in turn
on the same running guests. See ``doc/source/admin/lab.rst``.
"""

import argparse
import dataclasses
import json
import operator
import os
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nova_vhpc_lab.bench.common import cli_types, outputs

INTERVAL_ROUNDS = 9
"""So many rounds make the range of a figure a 95% confidence interval."""

PROGRAM_POLICIES = ('stock', 'default', 'wait', 'wait-windows')

HELP = 'Compare all policies, and stock Linux, on real libvirt guests.'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``nova-vhpc-bench lab``."""
    from nova_vhpc_lab.bench.lab import mixes, policies
    from nova_vhpc_lab.testbed import parallel_programs

    outputs.add_json(parser)
    parser.add_argument(
        '--merge',
        action='store_true',
        help='keep the figures of other mixes and policies that are in FILE',
    )
    parser.add_argument(
        '--plot',
        type=Path,
        metavar='DIR',
        help='draw the figures into DIR (needs matplotlib)',
    )
    parser.add_argument(
        '--quick',
        action='store_true',
        help='measure less often and for a shorter time: about 20 minutes',
    )
    parser.add_argument(
        '--mixes',
        type=_names(mixes.MIXES),
        default=list(mixes.DEFAULT_MIXES),
        metavar='LIST',
        help=f'mixes to measure, of {", ".join(mixes.MIXES)}; default: the '
        'first five; empty for none',
    )
    parser.add_argument(
        '--policies',
        type=_policies,
        metavar='LIST',
        help='policies to measure, of '
        f'{", ".join(policies.POLICIES)}; default: all that need no '
        f'--programs; with these {", ".join(PROGRAM_POLICIES)}',
    )
    parser.add_argument(
        '--programs',
        type=_names(parallel_programs.LIBRARIES),
        default=[],
        metavar='LIST',
        help='let the clusters of the mixes run programs of these libraries, '
        f'of {", ".join(parallel_programs.LIBRARIES)}',
    )
    parser.add_argument(
        '--work-us',
        type=cli_types.number(1),
        nargs='+',
        default=[1000.0],
        help='how long these programs compute between two barriers, in '
        'microseconds (default: 1000)',
    )
    parser.add_argument(
        '--claims',
        action='store_true',
        help="also check the papers' claims of slices, pools, packets, memory "
        'and scaling',
    )
    parser.add_argument(
        '--all',
        action='store_true',
        help='measure all mixes, policies and claims, nine times each, so '
        'that all ranges are 95%% confidence intervals: about five hours on '
        'a machine that does nothing else',
    )
    parser.add_argument(
        '--page',
        type=Path,
        metavar='FILE',
        help="write the page on the papers' claims (reStructuredText) to FILE",
    )
    parser.add_argument(
        '-k',
        type=cli_types.integer(),
        help='number of best runs that must agree (default: 10; 2 with '
        '--quick)',
    )
    parser.add_argument(
        '-m',
        type=cli_types.integer(),
        help='largest number of runs (default: 100; 2 with --quick), and of '
        'rounds of --claims, but at most five of these',
    )
    parser.add_argument(
        '--max-other-load',
        type=cli_types.number(0.0),
        default=0.1,
        metavar='CPUS',
        help='leave a round out if something else on the machine took more '
        'than so many CPUs in it (default: %(default)s); raise it only to '
        'try the lab out on a busy machine',
    )
    parser.add_argument(
        '--option',
        type=_setting,
        action='append',
        default=[],
        metavar='POLICY:NAME=VALUE',
        help='add a policy with this option of [vhpc_control], or add the '
        'option to an existing policy; for example '
        'wide:gang_window_us=100000',
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print the tables and write the files.

    :returns: exit status: 0; 1 if the lab cannot be set up here, or if
        something else disturbed every round of a mix.
    :raises OutputError: a file cannot be written, the figures cannot be
        drawn, or the figures to merge with cannot be read.
    """
    # Imported here, because --help must work without these packages.
    import libvirt

    from nova_vhpc_lab.bench.lab import (
        experiments,
        figures,
        guest_set,
        kbest,
        mix_figures,
        mixes,
        paper_claims,
        policies,
        report,
        runner,
    )
    from nova_vhpc_lab.testbed import errors, image, libvirtd

    outputs.check(args.json)
    outputs.check(args.page)
    outputs.check_directory(args.plot)
    if args.all:
        args.mixes, args.claims = list(mixes.MIXES), True
    options, extra = _policy_options(args.option)
    wanted = args.policies or _default_policies(args.programs)
    names = [*wanted, *(n for n in extra if n not in wanted)]
    most_rounds = INTERVAL_ROUNDS if args.all else 100
    scheme = kbest.KBest(
        k=args.k or (2 if args.quick else 10),
        m=args.m or (2 if args.quick else most_rounds),
    )
    claim_rounds = min(scheme.m, INTERVAL_ROUNDS if args.all else 5)
    timing = dataclasses.replace(
        runner.Timing(settle_s=7.0, measure_s=3.0, alone_s=0.4)
        if args.quick
        else runner.Timing(),
        max_other_load=args.max_other_load,
    )
    document = _earlier_figures(args.json) if args.merge else {'mixes': {}}
    document.update(report.circumstances(scheme, timing))
    began = time.monotonic()
    try:
        cpus = _two_cpus()
        selected = _mixes(args, names)
        # Checked before the image is built, which takes a download.
        guest_set.check(selected)
        guest_image = image.build_image(parallel=bool(args.programs))
        for mix in selected:
            measured = runner.measure_mix(
                mix, guest_image, names, timing, scheme, _say, cpus, options
            )
            mix_figures.add(document, mix, measured, scheme, len(cpus))
            document['overall'] = figures.overall(document['mixes'])
            document['seconds'] = round(time.monotonic() - began)
            _keep(args.json, document)
        if args.claims:
            document['claims'] = experiments.measure(
                guest_image, timing, claim_rounds, _say, cpus
            )
            _keep(args.json, document)
    except (
        errors.ImageError,
        errors.LabError,
        libvirtd.LibvirtdError,
        libvirt.libvirtError,
        policies.AgentError,
    ) as error:
        print(f'nova-vhpc-bench lab: {error}', file=sys.stderr)
        return 1
    report.print_tables(document)
    outputs.write_json(args.json, document)
    if args.page:
        outputs.write_text(args.page, paper_claims.page(document))
    disturbed = mix_figures.undecided(document, [mix.name for mix in selected])
    if disturbed:
        _say(
            f'nova-vhpc-bench lab: no figures for {", ".join(disturbed)}: '
            'something else disturbed every round; stop what else runs on '
            'this machine, or see --max-other-load'
        )
        return 1
    if args.plot:
        from nova_vhpc_lab.bench.lab import plot

        plot.draw(document, args.plot)
    return 0


def _earlier_figures(path: Path | None) -> dict[str, Any]:
    """Return the figures of an earlier run; none if there is no file.

    :raises OutputError: the file holds something else.
    """
    from nova_vhpc_lab.bench.lab import figures

    if path is None or not path.exists():
        return {'mixes': {}}
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        for by_policy in document['mixes'].values():
            for entry in by_policy.values():
                operator.itemgetter(*figures.FIGURES)(entry)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise outputs.OutputError(
            path,
            'it holds no figures of an earlier run to merge with; name '
            'another file, or leave --merge out',
        ) from None
    return document


def _keep(path: Path | None, document: dict[str, Any]) -> None:
    """Write the figures so far, so that an interrupted run is not lost."""
    try:
        outputs.write_json(path, document)
    except outputs.OutputError as error:
        # The disk may have space again when everything is measured.
        _say(f'nova-vhpc-bench lab: {error}; will retry at the end')


def _say(text: str) -> None:
    """Report progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def _two_cpus() -> tuple[int, ...]:
    """Return the first two CPUs that this process may use."""
    from nova_vhpc_lab.testbed import errors

    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise errors.LabError('the lab needs two CPUs')
    return tuple(usable[:2])


def _default_policies(programs: Collection[str]) -> list[str]:
    """Return the policies to measure if the command names none."""
    from nova_vhpc_lab.bench.lab import policies

    if programs:
        return list(PROGRAM_POLICIES)
    return [one for one in policies.POLICIES if one not in policies.NAPPING]


def _mixes(args: argparse.Namespace, names: Collection[str]) -> list[Any]:
    """Return the mixes to measure.

    :param names: policies to measure.
    :raises LabError: a policy or mix does not go with ``--programs``.
    """
    from nova_vhpc_lab.bench.lab import mixes, policies
    from nova_vhpc_lab.testbed import errors

    selected = [mixes.MIXES[name] for name in args.mixes]
    if args.programs:
        return [
            mixes.with_library(mix, library, work_us)
            for library in args.programs
            for work_us in args.work_us
            for mix in selected
        ]
    if napping := policies.NAPPING.intersection(names):
        raise errors.LabError(
            f'{", ".join(sorted(napping))}: only programs of an MPI or OpenMP '
            'library can nap; name some by --programs'
        )
    return selected


def _names(choices: Collection[str]) -> Callable[[str], list[str]]:
    """Return the argparse type of a comma-separated list of names."""

    def parse(text: str) -> list[str]:
        names = [name for name in text.split(',') if name]
        for name in names:
            if name not in choices:
                raise argparse.ArgumentTypeError(
                    f"'{name}' is not one of {', '.join(choices)}"
                )
        return names

    return parse


def _policies(text: str) -> list[str]:
    """Argparse type of ``--policies``."""
    from nova_vhpc_lab.bench.lab import policies

    names = _names(policies.POLICIES)(text)
    if not names:
        raise argparse.ArgumentTypeError(
            f'name at least one of {", ".join(policies.POLICIES)}'
        )
    return names


def _setting(word: str) -> tuple[str, str, str]:
    """Argparse type of ``--option``: a policy, an option and its value."""
    from nova_vhpc.conf import control
    from nova_vhpc_lab.bench.lab import policies

    policy, _, setting = word.partition(':')
    key, equals, value = setting.partition('=')
    if not (policy and equals):
        raise argparse.ArgumentTypeError(f"'{word}': not POLICY:NAME=VALUE")
    if policies.POLICIES.get(policy, {}) is None:
        raise argparse.ArgumentTypeError(
            f"'{word}': {policy} has no agent, so it takes no options"
        )
    # Checked here, because the agent only logs an unknown option.
    conf = cfg.ConfigOpts()
    control.register_opts(conf)
    try:
        conf.set_override(key, value, group=control.GROUP.name)
    except (cfg.NoSuchOptError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"'{word}': {error}") from None
    return policy, key, value


def _policy_options(
    settings: list[tuple[str, str, str]],
) -> tuple[dict[str, dict[str, str] | None], list[str]]:
    """Return the options of all policies, and the names of changed ones."""
    from nova_vhpc_lab.bench.lab import policies

    options = {
        name: None if one is None else dict(one)
        for name, one in policies.POLICIES.items()
    }
    added: list[str] = []
    for policy, key, value in settings:
        values = options.setdefault(policy, {})
        assert values is not None  # _setting refuses a policy without agent
        values[key] = value
        if policy not in added:
            added.append(policy)
    return options, added
