# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Reasons of failed requests; with a real Keystone in tests/functional."""

from keystoneauth1 import access, adapter, fixture, session
from keystoneauth1 import exceptions as ksa
from keystoneauth1.identity import v3

from nova_vhpc.clients import failures
from nova_vhpc.tests import base

GROUP = failures.Place.of_group('placement')
CLOUD = failures.Place("cloud 'a' in clouds.yaml", {'cafile': 'cacert'})
VARIABLES = failures.Place('', {'cafile': 'cacert'}, prefix='OS_')


class PlaceTest(base.TestCase):
    def test_options_are_spelled_as_they_are_set(self) -> None:
        names = ('auth_url', 'username', 'cafile')
        self.assertEqual(
            'auth_url, username and cafile of [placement]',
            GROUP.options(*names),
        )
        self.assertEqual(
            "cacert of cloud 'a' in clouds.yaml", CLOUD.options('cafile')
        )
        self.assertEqual(
            'OS_AUTH_URL, OS_USERNAME and OS_CACERT',
            VARIABLES.options(*names),
        )

    def test_interface_of_keystone_authtoken_has_another_name(self) -> None:
        self.assertEqual(
            'interface of [keystone_authtoken]',
            failures.Place.of_group('keystone_authtoken').options(
                'valid_interfaces'
            ),
        )


class ReasonTest(base.TestCase):
    def test_pool_of_urllib3_is_left_out(self) -> None:
        error = ksa.ConnectFailure(
            'Unable to establish connection to http://k:1/v3/auth/tokens: '
            "HTTPConnectionPool(host='k', port=1): Max retries exceeded with "
            'url: /v3/auth/tokens (Caused by NewConnectionError('
            "\"HTTPConnection(host='k', port=1): Failed to establish a new "
            'connection: [Errno 111] Connection refused"))'
        )
        self.assertEqual(
            'Unable to establish connection to http://k:1/v3/auth/tokens: '
            'Failed to establish a new connection: [Errno 111] Connection '
            'refused; is Keystone up, and auth_url of [placement] right?',
            failures.reason(error, GROUP),
        )

    def test_service_away_is_no_fault_of_auth_url(self) -> None:
        reason = failures.reason(
            ksa.ConnectTimeout('Request to http://placement timed out'), GROUP
        )
        self.assertIn('is the service up?', reason)
        self.assertNotIn('auth_url', reason)

    def test_unknown_authority_asks_for_its_file(self) -> None:
        error = ksa.SSLError(
            'SSL exception connecting to https://k/v3: '
            "HTTPSConnectionPool(host='k', port=443): Max retries exceeded "
            'with url: /v3 (Caused by SSLError(SSLCertVerificationError(1, '
            "'[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
            "self-signed certificate (_ssl.c:1006)')))"
        )
        self.assertEqual(
            'SSL exception connecting to https://k/v3: [SSL: '
            'CERTIFICATE_VERIFY_FAILED] certificate verify failed: '
            'self-signed certificate (_ssl.c:1006); set cafile of '
            '[placement] to the file of the authority that issued the '
            'certificate',
            failures.reason(error, GROUP),
        )

    def test_catalog_error_names_keystone(self) -> None:
        auth = v3.Password('http://k/v3', 'secret')
        reason = failures.reason(
            ksa.EndpointNotFound("['internal'] endpoint for x not found"),
            GROUP,
            adapter.Adapter(session.Session(auth=auth)),
        )
        self.assertEqual(
            'internal endpoint for x not found; set region_name and '
            "valid_interfaces of [placement] to what Keystone's catalog "
            '(http://k/v3) has: openstack catalog list',
            reason,
        )

    def test_refused_token_without_a_project_is_not_told_to_get_a_role(
        self,
    ) -> None:
        token = fixture.V3Token
        system, domain, project, nothing = (token() for _ in range(4))
        system.set_system_scope()
        domain.set_domain_scope()
        project.set_project_scope()
        for body, words, others in (
            (system, ('of the system', 'set system_scope of'), 'role'),
            (domain, ('of the domain', 'set domain_name of'), 'role'),
            (project, ('role service or admin in its project',), 'token'),
            (nothing, ('role service or admin', 'of a project'), 'system'),
        ):
            auth = v3.Password('http://k/v3', 'secret')
            auth.auth_ref = access.create(body=body, auth_token='t')
            client = adapter.Adapter(session.Session(auth=auth))
            for text in (
                failures.reason(ksa.Forbidden('no'), GROUP, client),
                failures.refusal(403, GROUP, client),
                failures.refusal(403, GROUP, client.session),
            ):
                for word in words:
                    self.assertIn(word, text)
                self.assertNotIn(others, text)
        self.assertIn('check project_name', failures.refusal(403, GROUP))

    def test_text_is_kept_if_there_is_no_advice(self) -> None:
        error = ksa.ServiceUnavailable(request_id='req-1')
        self.assertEqual(
            'Service Unavailable (HTTP 503)', failures.reason(error, GROUP)
        )

    def test_bug_is_no_connection_error(self) -> None:
        for error in (ksa.ClientException(), OSError(), Exception('missing')):
            self.assertTrue(failures.is_connection_error(error))
        for error in (ValueError(), AttributeError(), RuntimeError()):
            self.assertFalse(failures.is_connection_error(error))
