# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Nova's test cases, for machines that run other jobs, and for Nova 33."""

from typing import Any

from nova.tests.functional import integrated_helpers

from nova_vhpc.tests.functional import nova_threads

_RETRIES = 120


class Patience(integrated_helpers.InstanceHelperMixin):
    """Waits up to a minute for a server's state; nova's tests wait 5 s.

    Must precede nova's own classes among a test's bases.
    """

    def setUp(self) -> None:
        self.useFixture(nova_threads.NovaThreads())
        super().setUp()

    def _wait_for_state_change(
        self,
        server: dict[str, Any],
        expected_status: str,
        max_retries: int = _RETRIES,
        **options: Any,
    ) -> dict[str, Any]:
        """Wait for a server's state.

        :param options: further ones of Nova 34; Nova 33 has none.
        """
        final: dict[str, Any] = super()._wait_for_state_change(
            server, expected_status, max_retries=max_retries, **options
        )
        return final
