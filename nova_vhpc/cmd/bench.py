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

"""``nova-vhpc-bench``: measured figures, with the peer in the same run.

Every subcommand is a module of ``nova_vhpc.bench`` with ``HELP``,
``add_arguments(parser)`` and ``run(args) -> int``. It calls
``outputs.check`` before it measures and writes after it has printed.
"""

import argparse
import importlib
import sys

from nova_vhpc import version
from nova_vhpc.bench import outputs

SUBCOMMANDS = (
    'scheduler',
    'agent',
    'controller',
    'predictors',
    'lab',
    'replay',
    'peers',
)


def main(argv: list[str] | None = None) -> int:
    """Run one benchmark.

    :returns: 0, or 1 when it could not be measured or written, 2 on bad
        arguments.
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog='nova-vhpc-bench', description='Measure nova-vhpc.'
    )
    version.add_argument(parser)
    subparsers = parser.add_subparsers(dest='command', required=True)
    # Only what is asked for is imported: a bench that measures its own
    # memory must not carry the others'.
    wanted = [name for name in SUBCOMMANDS if name in argv[:1]]
    for name in wanted or SUBCOMMANDS:
        module = importlib.import_module(f'nova_vhpc.bench.{name}')
        subparser = subparsers.add_parser(
            name, help=module.HELP, description=module.HELP
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    try:
        status: int = args.run(args)
    except outputs.OutputError as error:
        print(f'nova-vhpc-bench {args.command}: {error}', file=sys.stderr)
        return 1
    return status


if __name__ == '__main__':
    sys.exit(main())
