# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Argument types of the benchmarks: numbers within limits."""

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
) -> None:
    """Add an argument that is a whole number.

    :param about: help text.
    :param least: smallest number that is accepted.
    """
    _add(parser, name, integer(least), default, 'N', about)


def integer(least: int = 1) -> Callable[[str], float]:
    """Return the argparse type of a whole number.

    :param least: smallest number that is accepted.
    """
    return _number(int, 'a whole number', least)


def number(least: float = 0.0) -> Callable[[str], float]:
    """Return the argparse type of a number.

    :param least: smallest number that is accepted.
    """
    return _number(float, 'a number', least)


def add_seconds(
    parser: argparse.ArgumentParser,
    name: str,
    default: float,
    about: str,
    least: float = 1.0,
) -> None:
    """Add an argument that is a number of seconds.

    :param about: help text.
    :param least: smallest number that is accepted.
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
    expected: str,
    least: float,
) -> Callable[[str], float]:
    """Return the argparse type of a finite number.

    :param expected: description of the number, for the error message.
    """

    def parse(text: str) -> float:
        with contextlib.suppress(ValueError):
            number = convert(text)
            if least <= number < math.inf:
                return number
        raise argparse.ArgumentTypeError(
            f"'{text}' is not {expected} from {least:g}"
        )

    return parse
