# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Console scripts: load a program, or say which extra it lacks.

A program is imported only here, not by the script, so that a missing library
is told of in one line, whichever module imports it.
"""

import functools
import importlib
import signal
import sys
from typing import Any

PROGRAMS = (
    'agent',
    'ctl',
    'explain',
    'flavor',
    'hook',
    'status',
    'top',
    'vendordata',
)

_DISTRIBUTIONS = {
    'libvirtmod': 'libvirt-python',
    'libvirt': 'libvirt-python',
    'libvirt_qemu': 'libvirt-python',
    'openstack': 'openstacksdk',
    'prometheus_client': 'prometheus_client',
    'yaml': 'PyYAML',
}
"""Distributions on PyPI whose names differ from those of their modules."""

_EXTRAS = {
    'agent': 'agent',
    'ctl': 'cli',
    'explain': 'cli',
    'flavor': 'cli',
    'hook': 'agent',
    'top': 'top',
    'vendordata': 'vendordata',
}
"""Extras of the package with the libraries of each program.

``nova-vhpc-status`` needs none.
"""

_STATUSES = {
    # libvirt would not start the domain otherwise.
    'hook': 0,
    'explain': 1,
    'flavor': 1,
}
"""Exit statuses of programs for errors, 2 for all others."""


def run(program: str, **arguments: Any) -> int:
    """Load a program and run it.

    :param program: name of its module in this package.
    :param arguments: given to its ``main``.
    :returns: exit status of the program, or that for an error if a library
        that it needs cannot be imported; 130 if it was interrupted.
    """
    try:
        status: int = importlib.import_module(f'nova_vhpc.cli.{program}').main(
            **arguments
        )
    except ImportError as error:
        if error.name is None or error.name.partition('.')[0] == 'nova_vhpc':
            raise
        print(
            f'nova-vhpc-{program}: {_reason(error, _EXTRAS.get(program))}',
            file=sys.stderr,
        )
        return _STATUSES.get(program, 2)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return status


def _reason(error: ImportError, extra: str | None) -> str:
    """Return what is missing and what to do, in one line."""
    module = str(error.name).partition('.')[0]
    distribution = _DISTRIBUTIONS.get(module)
    if distribution is None:
        distribution = module.replace('oslo_', 'oslo.')
    text = ' '.join(str(error).split())
    pip = f'{sys.executable} -m pip install'
    if extra is None:
        advice = f'Install or upgrade {distribution}: "{pip} {distribution}"'
    else:
        advice = (
            f'It belongs to the extra "{extra}", which may not be installed: '
            f'"{pip} \'nova-vhpc[{extra}]\'"; or install or upgrade it alone: '
            f'"{pip} {distribution}"'
        )
    return (
        f'cannot load the Python library {module} ({text}). {advice}, or your '
        "distribution's package "
        f'(python3-{distribution.removesuffix("-python").lower()} or alike)'
    )


def make_parser(program: str) -> Any:
    """Return the parser of a program's command line, for the docs."""
    return importlib.import_module(f'nova_vhpc.cli.{program}').make_parser()


def agent() -> int:
    """Run the agent, which handles signals from its first moment on.

    Loading the agent takes about a second. A signal in that time would end
    the process: a SIGHUP for good, because systemd takes that for a clean
    exit, and a SIGTERM before anything is restored that an agent that crashed
    has left in servers.
    """
    signal.pthread_sigmask(
        signal.SIG_BLOCK,
        {
            *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
            *(signal.SIGUSR1, signal.SIGUSR2),
        },
    )
    from nova_vhpc.agent.daemon import systemd

    signals = systemd.Signals()
    signals.catch()
    return run('agent', signals=signals)


ctl = functools.partial(run, 'ctl')
explain = functools.partial(run, 'explain')
flavor = functools.partial(run, 'flavor')
hook = functools.partial(run, 'hook')
status = functools.partial(run, 'status')
top = functools.partial(run, 'top')
vendordata = functools.partial(run, 'vendordata')
