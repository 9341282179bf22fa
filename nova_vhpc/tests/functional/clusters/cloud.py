# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A real Nova (API, conductor, scheduler, compute) and Placement, in process.

Comments mark what Nova's functional base class needs outside of Nova's tree.
"""

import os
import sys

# Must come before nova is imported: its tests default to eventlet.
os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'

from nova.tests.functional import integrated_helpers
from oslo_config import cfg
from wsgi_intercept import interceptor

from nova_vhpc.conf import nova_api
from nova_vhpc.tests.functional import patience


class CloudCase(
    patience.Patience, integrated_helpers.ProviderUsageBaseTestCase
):
    """Computes ``host1`` and ``host2`` with nova's fake driver."""

    compute_driver = 'fake.MediumFakeDriver'
    microversion = '2.100'
    api_down = False

    def setUp(self) -> None:
        # The wheel puts api-paste.ini elsewhere than nova's tests look.
        self.flags(
            group='wsgi',
            api_paste_config=sys.prefix + '/etc/nova/api-paste.ini',
        )
        super().setUp()
        self.api.microversion = self.microversion
        self.admin_api.microversion = self.microversion
        self.endpoint = self._serve()
        self.computes = {
            name: self._start_compute(name) for name in ('host1', 'host2')
        }

    def _serve(self) -> str:
        """Serve Nova's API to clients without the headers of a test user.

        :returns: URL of the API.
        """
        nova = self.api_fixture.app()

        def app(environ: dict[str, object], start: object) -> object:
            if self.api_down:
                start('503 Service Unavailable', [])
                return [b'']
            environ.update(
                HTTP_X_AUTH_USER='admin',
                HTTP_X_AUTH_PROJECT_ID=self.api_fixture.project_id,
                HTTP_X_ROLES='reader,member,admin',
            )
            return nova(environ, start)

        url = 'http://nova-for-the-agent:80/'
        intercept = interceptor.RequestsInterceptor(lambda: app, url=url)
        intercept.install_intercept()
        self.addCleanup(intercept.uninstall_intercept)
        return url + 'v2.1'

    def make_flavor(self, **specs: str) -> str:
        """Create a flavor, and return its ID.

        :param specs: extra specs, without the prefix ``vhpc:``.
        """
        extra = {f'vhpc:{name}': value for name, value in specs.items()}
        flavor: str = self._create_flavor(
            vcpu=1, memory_mb=64, disk=1, extra_spec=extra
        )
        return flavor

    def boot(
        self,
        flavor: str,
        host: str,
        group: str | None = None,
        metadata: dict[str, str] | None = None,
    ) -> str:
        """Boot a server on a host, wait until it runs, return its UUID."""
        server = self._build_server(
            flavor_id=flavor, networks='none', host=host
        )
        server['metadata'] = metadata or {}
        body = {'server': server}
        if group is not None:
            body['os:scheduler_hints'] = {'group': group}
        created = self.admin_api.post_server(body)
        uuid: str = self._wait_for_state_change(created, 'ACTIVE')['id']
        return uuid

    def make_conf(self, **options: object) -> cfg.ConfigOpts:
        """Return an agent's configuration that reaches this Nova.

        :param options: values of ``[vhpc_nova]``.
        """
        conf = cfg.ConfigOpts()
        nova_api.register_opts(conf)
        conf([], project='nova-vhpc', default_config_files=[])
        conf.set_override('auth_type', 'none', 'vhpc_nova')
        conf.set_override('endpoint_override', self.endpoint, 'vhpc_nova')
        for name, value in options.items():
            conf.set_override(name, value, 'vhpc_nova')
        return conf
