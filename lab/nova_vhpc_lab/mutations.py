# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Draw some of Cosmic Ray's mutations, and count what the tests caught.

``tools/mutations.sh`` calls it: Cosmic Ray makes all mutations of a package,
of which ``draw`` leaves a few to be tested; ``count`` prints the survivors.
"""

import argparse
import pathlib
import random
import sys

from cosmic_ray import work_db, work_item


def is_telling(mutation: work_item.MutationSpec) -> bool:
    """Return whether tests should notice a mutation.

    They cannot notice another identity of equal values, nor slots of a class.
    """
    if mutation.operator_name.endswith(('_Is', '_IsNot')):
        return False
    lines = pathlib.Path(mutation.module_path).read_text().splitlines()
    return not lines[mutation.start_pos[0] - 1].lstrip().startswith('@')


def draw(session: str, number: int, seed: int) -> None:
    """Skip all mutations of a session but some.

    :param session: file of Cosmic Ray's session.
    :param number: mutations to leave.
    :param seed: the same seed draws the same ones.
    """
    skipped = work_item.WorkResult(
        worker_outcome=work_item.WorkerOutcome.SKIPPED
    )
    with work_db.use_db(session) as db:
        items = sorted(
            db.work_items,
            key=lambda item: (
                str(item.mutations[0].module_path),
                item.mutations[0].start_pos,
                item.mutations[0].operator_name,
                item.mutations[0].occurrence,
            ),
        )
        telling = [item for item in items if is_telling(item.mutations[0])]
        drawn = random.Random(seed).sample(telling, min(number, len(telling)))
        left = {item.job_id for item in drawn}
        db.set_multiple_results(
            [item.job_id for item in items if item.job_id not in left],
            skipped,
        )


def count(session: str) -> tuple[int, int]:
    """Print the mutations that no test noticed.

    :returns: how many were caught, and how many survived.
    """
    caught = survived = 0
    with work_db.use_db(session) as db:
        for item, result in db.completed_work_items:
            if result.worker_outcome == work_item.WorkerOutcome.SKIPPED:
                continue
            if result.test_outcome == work_item.TestOutcome.SURVIVED:
                survived += 1
                mutation = item.mutations[0]
                print(
                    f'survived: {mutation.module_path}:'
                    f'{mutation.start_pos[0]} {mutation.operator_name}'
                )
                print(result.diff)
            else:
                caught += 1
    return caught, survived


def main() -> int:
    """Draw mutations of a session, or count its results.

    :returns: 0, or 1 if fewer than ``--least`` were caught.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('action', choices=('draw', 'count'))
    parser.add_argument('session')
    parser.add_argument('--number', type=int, default=25)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--least', type=int, default=22)
    args = parser.parse_args()
    if args.action == 'draw':
        draw(args.session, args.number, args.seed)
        return 0
    caught, survived = count(args.session)
    print(f'{caught} caught, {survived} survived')
    return 0 if caught >= min(args.least, caught + survived) else 1


if __name__ == '__main__':
    sys.exit(main())
