# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-hosts``: files for launchers and job schedulers, in a guest.

What launchers of MPI read, and a report for people, are made of the
vendordata of a member.

Part of the program that runs in guests (:mod:`.script`): Python 3.6 and its
standard library.
"""

import argparse
import difflib
import http.client
import json
import os
import shlex
import sys
import time
import urllib.error
import urllib.request
from typing import Any

from nova_vhpc.vendordata.guest.topology_files import (
    TOPOLOGY_FORMATS,
    with_nodes,
)

URL = 'http://169.254.169.254/openstack/latest/vendor_data2.json'

CONFIG_DRIVE = '/mnt/config/openstack/latest/vendor_data2.json'
"""Where cloud-init's documentation mounts a config drive."""

_TIMEOUT_S = 10
_PAUSE_S = 5

_HELP = """\
Print files for launchers of MPI and for job schedulers, from what the
metadata service says of this server's virtual cluster.
"""


class HostsError(Exception):
    """The vendordata cannot be had or used; the text says why."""


def main(argv: 'list[str] | None' = None) -> int:
    """Print one file.

    :returns: 0; 1 if there is nothing to print, or with ``--wait`` no
        complete cluster; 2 for bad arguments; 130 if it is interrupted.
    """
    args = make_parser().parse_args(argv)
    try:
        _print(_text_of(args))
    except KeyboardInterrupt:
        return 130
    except (HostsError, ValueError) as error:
        reason = str(error)
    except OSError as error:
        reason = f'standard output: {error}'
    except (LookupError, TypeError, AttributeError) as error:
        reason = (
            'the vendordata is not that of nova-vhpc-vendordata '
            f'({error!r}); is it of another version?'
        )
    else:
        return 0
    sys.stderr.write(f'nova-vhpc-hosts: {plain(reason)}\n')
    return 1


def _text_of(args: argparse.Namespace) -> str:
    """Return the text of the file that is asked for.

    :raises HostsError: there is no vendordata, or no member to name.
    """
    answer = _complete(args) if args.wait else read_answer(args)
    if args.format in TOPOLOGY_FORMATS:
        nodes = args.nodes.split(',') if args.nodes else []
        members = with_nodes(answer['members'], nodes)
        if not any(member['host'] for member in members) and any(
            member['running'] for member in answer['members']
        ):
            raise HostsError(
                'the cloud does not tell which members share a host, a switch '
                'or a rack: ask the operator to give nova-vhpc-vendordata a '
                'secret for their IDs'
            )
        return TOPOLOGY_FORMATS[args.format](members)
    text = LAUNCHER_FORMATS[args.format](answer)
    if not text:
        raise HostsError(
            'no member runs and has an address yet: try it again later, or '
            'wait for all by --wait SECONDS'
        )
    return text


def _print(text: str) -> None:
    """Print text, with "?" for what the encoding of the terminal lacks.

    :raises OSError: standard output cannot be written to.
    """
    encoding = sys.stdout.encoding or 'utf-8'
    try:
        sys.stdout.write(text.encode(encoding, 'replace').decode(encoding))
        sys.stdout.flush()
    except OSError:
        # Python would try it again at its end, and complain at length.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog='nova-vhpc-hosts', description=_HELP, allow_abbrev=False
    )
    parser.add_argument(
        'format',
        nargs='?',
        default='report',
        type=_format,
        choices=_formats(),
        help='what to print (default: %(default)s)',
    )
    parser.add_argument(
        '--url',
        default=URL,
        help='metadata service (default: %(default)s)',
    )
    parser.add_argument(
        '--file',
        help=f'read this file instead, such as {CONFIG_DRIVE} of a '
        'config drive, which is as old as the server',
    )
    parser.add_argument(
        '--target',
        default='vhpc',
        help="name of the service in Nova's vendordata_dynamic_targets "
        '(default: %(default)s)',
    )
    parser.add_argument(
        '--nodes',
        metavar='NAME,...',
        help='names of all nodes of the job scheduler: those that are no '
        'servers yet are in the topology, too',
    )
    parser.add_argument(
        '--wait',
        type=_duration_s,
        default=0,
        metavar='SECONDS',
        help='wait so long at most until the cluster is complete',
    )
    return parser


def _formats() -> 'list[str]':
    return sorted([*LAUNCHER_FORMATS, *TOPOLOGY_FORMATS])


def _format(text: str) -> str:
    """Return the name of a format, which the command line gives."""
    if text not in _formats():
        near = difflib.get_close_matches(text, _formats(), 1)
        hint = f'did you mean {near[0]!r}? ' if near else ''
        raise argparse.ArgumentTypeError(
            f'{text!r} is no format: {hint}There are ' + ', '.join(_formats())
        )
    return text


def _duration_s(text: str) -> float:
    """Return a duration of the command line, in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no number of seconds; allowed: 0 and more'
        )
    return value


def read_answer(args: argparse.Namespace) -> 'dict[str, Any]':
    """Return the vendordata of this server's cluster.

    :raises HostsError: it cannot be read, or the server is in no cluster.
    """
    source = args.file or args.url
    try:
        if args.file:
            with open(args.file) as file:
                text = file.read()
        else:
            # Without a proxy: none reaches the link-local address.
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({})
            )
            with opener.open(args.url, timeout=_TIMEOUT_S) as response:
                text = response.read().decode()
        answer = json.loads(text)[args.target]
    except urllib.error.HTTPError as error:
        raise HostsError(
            f'{args.url}: {error}; has your cloud vendordata?'
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HostsError(
            f'{source}: no JSON, so not from the metadata service ({error})'
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise HostsError(f'{source}: {str(error).strip()}') from None
    except (KeyError, TypeError):
        raise HostsError(
            f'the vendordata has no {args.target!r}: ask the operator of the '
            'cloud whether nova-vhpc-vendordata runs and how its target is '
            'called (--target)'
        ) from None
    if not answer:
        raise HostsError(
            'this server is in no virtual cluster, or the cloud could not be '
            'asked: it needs a flavor with vhpc: extra specs and a server '
            'group'
        )
    found: dict[str, Any] = answer
    return found


def _complete(args: argparse.Namespace) -> 'dict[str, Any]':
    """Return the vendordata as soon as the cluster is complete.

    :raises HostsError: it is not in time.
    """
    end = time.monotonic() + args.wait
    while True:
        try:
            answer = read_answer(args)
            if answer['cluster']['complete']:
                return answer
            reason = 'the cluster is not complete'
        except HostsError as error:
            reason = str(error)
        if time.monotonic() >= end:
            raise HostsError(f'{reason}, after {args.wait:g} s')
        time.sleep(min(_PAUSE_S, max(0.0, end - time.monotonic())))


def openmpi_hostfile(answer: 'dict[str, Any]') -> str:
    """Return the hostfile of Open MPI."""
    return str(answer['hostfile']['openmpi'])


def mpich_hostfile(answer: 'dict[str, Any]') -> str:
    """Return the hostfile of MPICH's Hydra and of Intel MPI."""
    return str(answer['hostfile']['mpich'])


def prrte_hostfile(answer: 'dict[str, Any]') -> str:
    """Return the hostfile of PRRTE (``prte``, ``prterun``), which starts
    programs of PMIx."""
    return openmpi_hostfile(answer)


def rankfile(answer: 'dict[str, Any]') -> str:
    """Return a rankfile of Open MPI and PRRTE.

    It has a rank for each vCPU, or, where ranks have threads, for each
    member, with all its vCPUs.
    """
    lines = []
    rank = 0
    for member in listed_members(answer):
        slots = member['slots']
        for slot in range(slots):
            cpus = (
                str(slot)
                if slots == member['vcpus']
                else '0-{}'.format(member['vcpus'] - 1)
            )
            lines.append(
                'rank {}={} slot={}\n'.format(rank, member['node'], cpus)
            )
            rank += 1
    return ''.join(lines)


def environment(answer: 'dict[str, Any]') -> str:
    """Return lines for ``eval`` of a shell."""
    cluster = answer['cluster']
    values = {
        'VHPC_CLUSTER': cluster['id'],
        'VHPC_COMPLETE': 'yes' if cluster['complete'] else 'no',
        'VHPC_RANK': answer['rank'],
        'VHPC_MEMBERS': len(answer['members']),
        'VHPC_SLOTS': sum(one['slots'] for one in listed_members(answer)),
    }
    values.update(answer['mpi']['environment'])
    return ''.join(
        f'export {name}={shlex.quote(str(value))}\n'
        for name, value in sorted(values.items())
    )


def report(answer: 'dict[str, Any]') -> str:
    """Return what the cluster is and how it runs, for people."""
    cluster = answer['cluster']
    listed = listed_members(answer)
    lines = [
        'cluster {} ({}), network configuration {}'.format(
            plain(cluster['name']),
            cluster['id'],
            cluster['network'] or 'not set',
        ),
        '{} of {} members are ready: {}'.format(
            len(listed),
            cluster['expected'],
            'complete' if cluster['complete'] else 'NOT complete',
        ),
        '',
    ]
    rows = [['rank', 'name', 'address', 'vcpus', 'status', 'distance']]
    rows[0] += ['held up', 'windows', 'over-commit']
    for member in answer['members']:
        live = member.get('live') or {}
        mark = '*' if member['rank'] == answer['rank'] else ''
        rows.append(
            [
                '{}{}'.format(member['rank'], mark),
                plain(member['name']),
                member['address'] or '-',
                str(member['vcpus']),
                member['status'],
                member['distance'],
                _part(live.get('held_up_s'), live.get('run_s')),
                _seconds(live.get('in_windows_s')),
                _number(live.get('overcommit')),
            ]
        )
    widths = [max(map(len, column)) for column in map(list, _columns(rows))]
    lines += [
        '  '.join(
            cell.ljust(widths[index]) for index, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    problems = []
    for member in answer['members']:
        problem = (member.get('live') or {}).get('problem')
        if problem:
            problems.append(
                '{}: {}'.format(plain(member['name']), plain(problem))
            )
    if problems:
        lines += ['', *problems]
    return '\n'.join(lines) + '\n'


def listed_members(answer: 'dict[str, Any]') -> 'list[dict[str, Any]]':
    """Return the members that hostfiles have."""
    return [
        member
        for member in answer['members']
        if member['running'] and member['address']
    ]


LAUNCHER_FORMATS = {
    'openmpi': openmpi_hostfile,
    'mpich': mpich_hostfile,
    'prrte': prrte_hostfile,
    'rankfile': rankfile,
    'environment': environment,
    'report': report,
}


def _columns(rows: 'list[list[str]]') -> 'list[list[str]]':
    return [[row[index] for row in rows] for index in range(len(rows[0]))]


def _part(held_up_s: 'float | None', run_s: 'float | None') -> str:
    """Return which part of the time that vCPUs wanted they were held up."""
    if held_up_s is None or run_s is None or not held_up_s + run_s:
        return '?'
    return f'{100 * held_up_s / (held_up_s + run_s):.0f}%'


def _seconds(value: 'float | None') -> str:
    return '?' if value is None else f'{value:.0f} s'


def _number(value: 'float | None') -> str:
    return '?' if value is None else f'{value:.1f}'


def plain(text: str) -> str:
    """Return text without what could control the terminal."""
    return ''.join(char if char.isprintable() else '?' for char in text)


if __name__ == '__main__':
    sys.exit(main())
