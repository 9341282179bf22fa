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
import contextlib
import math
from collections.abc import Callable


def add_integer(
    parser: argparse.ArgumentParser,
    name: str,
    default: int,
    about: str,
    least: int = 1,
    most: float = math.inf,
) -> None:
    """Declare an argument that is a whole number.

    :param about: what it is, for the help.
    :param least: the smallest one that is taken.
    :param most: the greatest one that is taken.
    """
    _add(parser, name, integer(least, most), default, 'N', about)


def integer(least: int = 1, most: float = math.inf) -> Callable[[str], float]:
    """Argparse type of a whole number.

    :param least: the smallest one that is taken.
    :param most: the greatest one that is taken.
    """
    return _number(int, 'a whole number', least, most)


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
    kind = _number(float, 'a number of seconds', least)
    _add(parser, name, kind, default, 'SECONDS', about)


def _add(
    parser: argparse.ArgumentParser,
    name: str,
    kind: Callable[[str], float],
    default: float,
    metavar: str,
    about: str,
) -> None:
    parser.add_argument(
        name,
        type=kind,
        default=default,
        metavar=metavar,
        help=f'{about} (default: %(default)s)',
    )


def _number(
    convert: Callable[[str], float],
    words: str,
    least: float,
    most: float = math.inf,
) -> Callable[[str], float]:
    """Argparse type of a finite number.

    :param words: what it is, for the complaint.
    """

    def parse(text: str) -> float:
        with contextlib.suppress(ValueError):
            number = convert(text)
            if least <= number <= most and number < math.inf:
                return number
        raise argparse.ArgumentTypeError(
            f"'{text}' is not {words} from {least:g}"
            + (f' to {most:g}' if most < math.inf else '')
        )

    return parse
