# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc claim heal``: lost and orphaned claims on uplinks."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from nova_vhpc.cli import base
from nova_vhpc.explain import claim_audit

LEFT = 3
"""Exit code if claims are not as they should be, as of Nova's own audit."""


class HealClaim(base.Lister):
    """Find claims on uplinks that are lost or that nobody holds; mend them.

    Without --apply nothing is written. The exit code is 0 if all claims are as
    they should be as far as that is certain, 3 if some are not.
    """

    _left = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add whether to write."""
        parser.add_argument(
            '--apply',
            action='store_true',
            help='write what is certain to Placement; without it, only what '
            'would be written is shown',
        )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Look at all claims and return the exit code."""
        return super().run(parsed_args) or (LEFT if self._left else 0)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Return a row for each consumer whose claims are wrong."""
        audit = claim_audit.ClaimAudit(self.connection)
        rows = []
        for finding in audit.findings():
            done = finding.remedy
            wrong = finding.judged
            if parsed_args.apply and finding.allocations is not None:
                left = audit.mend(finding.consumer)
                wrong = left is not None
                done = left.remedy if left else f'Done: {finding.remedy}'
            self._left = self._left or wrong
            rows.append(
                (finding.consumer, finding.host, finding.problem, done)
            )
        if audit.unseen:
            self.note(
                f'Not looked at: {audit.unseen} server(s) of which Nova does '
                'not tell the flavor, as of those in cells that do not answer.'
            )
        if not parsed_args.apply and rows:
            self.note('Nothing was written: see --apply.')
        return ('Consumer', 'Host', 'Problem', 'What To Do'), rows
