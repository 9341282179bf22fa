# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The soak's part ``chaos``."""

import collections
import traceback
from typing import TYPE_CHECKING

from nova_vhpc_lab.soak.part import Budget, Part, host_of

if TYPE_CHECKING:
    from nova_vhpc_lab.soak.chaos.host import Host
    from nova_vhpc_lab.soak.chaos.rounds import Round


class Chaos(Part):
    """Runs rounds on one host with real guests; needs root and QEMU."""

    name = 'chaos'
    counted = 'rounds'

    def run(self, seed: int, first: int, budget: Budget) -> bool:
        """Print each round that is wrong; return whether none is."""
        # The parsers' parts need neither libvirt nor the agent.
        from nova_vhpc_lab.soak.chaos.host import Host

        with host_of(Host) as host:
            return self._run(host, seed, first, budget)

    def _run(
        self, host: 'Host', seed: int, first: int, budget: Budget
    ) -> bool:
        from nova_vhpc_lab.soak.chaos.rounds import Round

        counts: collections.Counter[str] = collections.Counter()
        kinds: collections.Counter[str] = collections.Counter()
        rounds = failed = 0
        for number in budget.numbers(first):
            rounds += 1
            played = Round(host, seed, number)
            try:
                wrong = played.run()
            except Exception:
                wrong = [traceback.format_exc()]
                host.heal()
            disturbed = host.bystander_changes()
            counts['changes of bystanders'] += len(disturbed)
            wrong += [f'bystander: {change}' for change in disturbed]
            counts['touched'] += played.touched
            counts['loud'] += played.status != 0
            kinds.update(fault.name for fault in played.faults)
            kinds[f'end by {played.end}'] += 1
            if wrong:
                failed += 1
                self._report(host, played, seed, number, wrong)
            else:
                counts['guests exact'] += len(host.before)
            host.clean(everything=bool(wrong))
        for name, count in sorted(kinds.items()):
            print(f'  {name}: {count}')
        print(
            f'chaos: {rounds} rounds, {failed} failed; the agent had written '
            f'in {counts["touched"]}; {counts["loud"]} ended with a status '
            f'other than 0; {counts["guests exact"]} guests exact; '
            f'{counts["changes of bystanders"]} changes of bystanders in '
            f'{host.bystanders.looks} looks at {host.bystanders.watched} '
            'values',
            flush=True,
        )
        return not failed

    def _report(
        self,
        host: 'Host',
        played: 'Round',
        seed: int,
        number: int,
        wrong: list[str],
    ) -> None:
        log = host.log.read_text(errors='replace').splitlines()
        print(f'chaos: round {number}: {played}')
        for line in (*wrong, '--- the log of the agents:', *log[-60:]):
            print(f'  {line}')
        print(self.repeat(seed, number), flush=True)
