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
