# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Reading what Nova says of clusters."""

import contextlib
from typing import Any

import hypothesis
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.agent.clusters import membership

OURS = {'vhpc:workload': 'parallel'}


def server(**fields: Any) -> dict[str, Any]:
    return {
        'id': 's',
        'tenant_id': 'p',
        'flavor': {'extra_specs': OURS},
        **fields,
    }


class ReadServerTest(base.BaseTestCase):
    def test_server_group_is_the_cluster(self) -> None:
        for hint in ('g', ['g']):
            read = membership.read_server(
                server(scheduler_hints={'group': hint})
            )
            self.assertEqual('g', read.group)

    def test_server_without_vhpc_specs_is_not_read(self) -> None:
        self.assertIsNone(
            membership.read_server(
                server(flavor={'extra_specs': {'hw:cpu_policy': 'shared'}})
            )
        )

    def test_partial_answer_of_a_down_cell_is_not_read(self) -> None:
        self.assertIsNone(
            membership.read_server({'id': 's', 'status': 'UNKNOWN'})
        )

    def test_metadata_overrides_the_flavor(self) -> None:
        flavor = {'extra_specs': OURS | {'vhpc:cluster': 'f'}}
        read = membership.read_server(
            server(flavor=flavor, metadata={'vhpc:cluster': 'm'})
        )
        self.assertEqual('p/m', read.named)

    def test_invalid_name_names_no_cluster(self) -> None:
        read = membership.read_server(
            server(metadata={'vhpc:cluster': 'a b/c'})
        )
        self.assertIsNone(read.named)

    def test_tenants_cannot_join_each_other(self) -> None:
        names = {
            membership.read_server(
                server(tenant_id=tenant, metadata={'vhpc:cluster': 'x'})
            ).named
            for tenant in ('p', 'q')
        }
        self.assertEqual(2, len(names))

    def test_group_overrides_names_until_it_is_deleted(self) -> None:
        read = membership.Membership('s', group='g', named='p/n')
        self.assertEqual({'s': 'g'}, membership.clusters([read], frozenset()))
        self.assertEqual(
            {'s': 'p/n'}, membership.clusters([read], frozenset('g'))
        )

    @hypothesis.given(
        st.dictionaries(
            st.sampled_from(['scheduler_hints', 'metadata', 'flavor']),
            st.none()
            | st.dictionaries(
                st.sampled_from(['group', 'vhpc:cluster', 'extra_specs']),
                st.none() | st.just(OURS) | st.lists(st.text(), max_size=2),
            ),
        )
    )
    def test_invalid_answers_raise_expected_errors(
        self, fields: dict[str, Any]
    ) -> None:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            membership.read_server(server(**fields))


class ReadFileTest(base.BaseTestCase):
    def test_groups_file_is_read(self) -> None:
        self.assertEqual(
            {'s1': 'a', 's2': 'a', 's3': 'b'},
            membership.read_file({'a': ['s1', 's2'], 'b': ['s3']}),
        )
        self.assertEqual({}, membership.read_file(None))

    def test_error_of_groups_file_names_the_problem(self) -> None:
        for content, what in (
            (['s1'], 'map cluster names'),
            ({'a': 's1'}, "'a' must be a list"),
            ({'a': ['s1'], 'b': ['s1']}, 's1 is in a and in b'),
            ({'a': [['s1']]}, "'a' has a server that is no text"),
            ({'a' * 513: ['s1']}, 'more than 512 characters'),
        ):
            error = self.assertRaises(
                ValueError, membership.read_file, content
            )
            self.assertIn(what, str(error))
