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

"""Numbers on the command line that a measurement can work with."""

import argparse
import math
from collections.abc import Callable


def add_whole(
    parser: argparse.ArgumentParser,
    name: str,
    default: int,
    about: str,
    least: int = 1,
) -> None:
    """Declare an argument that is a whole number.

    :param about: what it is, for the help.
    :param least: the smallest one that is taken.
    """
    parser.add_argument(
        name,
        type=_whole(least),
        default=default,
        metavar='N',
        help=f'{about} (default: %(default)s)',
    )


def add_seconds(
    parser: argparse.ArgumentParser,
    name: str,
    default: float,
    about: str,
    least: float = 1.0,
) -> None:
    """Declare an argument that is a length of time in seconds.

    :param about: what it is, for the help.
    :param least: the shortest one that is taken.
    """
    parser.add_argument(
        name,
        type=_seconds(least),
        default=default,
        metavar='SECONDS',
        help=f'{about} (default: %(default)s)',
    )


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(
                f"'{text}' is not a whole number from {least}"
            )
        return number

    return parse


def _seconds(least: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number < math.inf:
            raise argparse.ArgumentTypeError(
                f"'{text}' is not a number of seconds from {least:g}"
            )
        return number

    return parse
