# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Rounds of an experiment, and which of them count."""

from collections.abc import Callable, Iterator

from nova_vhpc_lab.testbed import errors, other_load

Rounds = dict[str, dict[str, list[float]]]
"""Results of one experiment by figure and setting: one value per round."""

MIN_LEFT_OUT = 3
"""So many rounds may be left out even if fewer are to be measured."""


class DisturbedError(errors.LabError):
    """Something else on the machine disturbed too many rounds."""


def undisturbed(
    name: str,
    watch: other_load.OtherLoadWatch,
    max_other_load: float,
    rounds: int,
    results: Rounds,
    say: Callable[[str], None],
) -> Iterator[Rounds]:
    """Yield an empty dict per round, for the loop's body to fill.

    What it then holds is added to the results, unless something else on the
    machine disturbed the round.

    :param name: name of the experiment, for messages.
    :param watch: measures the other load during each measurement.
    :param max_other_load: greatest other load at which a round counts, in
        CPUs.
    :param rounds: number of rounds that must count.
    :param results: results of the rounds that count.
    :param say: called with one line per round that is left out.
    :raises DisturbedError: too many rounds were disturbed.
    """
    kept, left_out = 0, 0
    while kept < rounds:
        current: Rounds = {}
        watch.take()
        yield current
        load = watch.take()
        if load <= max_other_load:
            kept += 1
            _add(results, current)
            continue
        left_out += 1
        say(f'{name:9s} {left_out_text(load, max_other_load)}')
        if left_out >= max(rounds, MIN_LEFT_OUT):
            raise DisturbedError(
                f'{name}: something else disturbed {left_out} of '
                f'{kept + left_out} rounds'
            )


def keep(results: Rounds, figure: str, setting: str, value: float) -> None:
    """Add the value of one round."""
    by_setting = results.setdefault(figure, {})
    by_setting.setdefault(setting, []).append(round(value, 3))


def _add(results: Rounds, current: Rounds) -> None:
    for figure, by_setting in current.items():
        for setting, values in by_setting.items():
            results.setdefault(figure, {}).setdefault(setting, []).extend(
                values
            )


def left_out_text(load: float, max_other_load: float) -> str:
    """Return the message that a round is left out."""
    return (
        f'left out: something else took {load:.2f} CPUs, more than '
        f'{max_other_load:g}'
    )
