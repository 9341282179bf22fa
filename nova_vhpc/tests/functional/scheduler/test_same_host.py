# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Resize to the same host: the member stops before it starts again."""

from nova_vhpc.tests.functional.scheduler import base

STRICT = {'vhpc:workload': 'parallel', 'vhpc:max_overcommit': '1.0'}


class SameHostTest(base.SchedulerTestCase):
    """One host of ten CPUs."""

    def setUp(self):
        self.flags(allow_resize_to_same_host=True)
        super().setUp()
        self.start_hosts('one')

    def boot(self, vcpu, specs=STRICT):
        return self._create_server(
            flavor_id=self.flavor(specs, vcpu=vcpu), networks='none'
        )

    def test_only_the_resized_members_old_vcpus_count_as_free(self):
        with self.part('those of other members do not'):
            self.boot(4)
            server = self.boot(4)
            # 4 + 7 are more than 10.
            self.api.post_server_action(
                server['id'],
                {'resize': {'flavorRef': self.flavor(STRICT, vcpu=7)}},
                check_response_status=[202],
            )
            self._wait_for_action_fail_completion(
                server, 'resize', 'conductor_migrate_server'
            )
        server = self.boot(6)
        server = self._resize_server(server, self.flavor(STRICT, vcpu=8))
        self.assertEqual('one', server['OS-EXT-SRV-ATTR:host'])
        self._confirm_resize(server)
        self._resize_server(server, self.flavor(STRICT, vcpu=10))
