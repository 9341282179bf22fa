# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import yaml
from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.tests import base
from nova_vhpc.vendordata.guest import topology_files

_PLACES = st.none() | st.sampled_from(['1', '2', '3'])


def member(name, host=None, switch=None, rack=None):
    return {'name': name, 'host': host, 'switch': switch, 'rack': rack}


MEMBERS = [
    member('n3', 'host-3', 'switch-b', 'rack-a'),
    member('n1', 'host-1', 'switch-a', 'rack-a'),
    member('n2', 'host-1', 'switch-a', 'rack-a'),
    member('n4', 'host-4', 'switch-c', 'rack-b'),
]


class TreeTest(base.TestCase):
    def test_tree_of_slurm(self):
        self.assertEqual(
            'SwitchName=switch-a Nodes=n1,n2\n'
            'SwitchName=switch-b Nodes=n3\n'
            'SwitchName=switch-c Nodes=n4\n'
            'SwitchName=rack-a Switches=switch-a,switch-b\n'
            'SwitchName=rack-b Switches=switch-c\n'
            'SwitchName=vhpc Switches=rack-a,rack-b\n',
            topology_files.slurm_conf(MEMBERS),
        )

    def test_single_switch_needs_no_switch_above(self):
        members = [member('n1', 'h1', 's'), member('n2', 'h2', 's')]
        self.assertEqual(
            'SwitchName=s Nodes=n1,n2\n', topology_files.slurm_conf(members)
        )

    def test_host_of_unknown_switch_counts_as_a_switch(self):
        members = [member('n1', 'h1'), member('n2', 'h1'), member('n3')]
        self.assertEqual(
            {'h1': ['n1', 'n2'], 'unplaced': ['n3']},
            topology_files.leaf_nodes(members),
        )

    @given(
        st.lists(st.tuples(_PLACES, _PLACES, _PLACES), min_size=1, max_size=8)
    )
    def test_each_node_is_below_one_root_by_one_way(self, places):
        members = [
            member(
                f'n{number}',
                host and f'host-{host}',
                switch and f'switch-{switch}',
                rack and f'rack-{rack}',
            )
            for number, (host, switch, rack) in enumerate(places)
        ]
        leaves = topology_files.leaf_nodes(members)
        upper = topology_files.upper_switches(members)
        nodes = [name for names in leaves.values() for name in names]
        self.assertEqual(sorted(one['name'] for one in members), sorted(nodes))
        below = [name for names in upper.values() for name in names]
        self.assertEqual(len(set(below)), len(below))
        (root,) = {*leaves, *upper} - set(below)
        # A root above others comes last, as in files for people.
        if upper:
            self.assertEqual(root, list(upper)[-1])

    def test_files_do_not_depend_on_the_order_of_members(self):
        for form in topology_files.TOPOLOGY_FORMATS.values():
            self.assertEqual(form(MEMBERS), form(MEMBERS[::-1]))


class NodesTest(base.TestCase):
    def nodes(self, *names, **more):
        (first, *others) = topology_files.with_nodes(
            [dict(member('Rank 0', 'h1'), **more)], list(names)
        )
        return [first['name'], *(other['name'] for other in others)]

    def test_node_has_the_name_of_the_guest(self):
        """Nova made it of the name at first, and it stays."""
        self.assertEqual(['rank-0'], self.nodes(hostname='rank-0'))
        self.assertEqual(['rank-0'], self.nodes(hostname='rank-0.hpc'))
        self.assertEqual(
            ['rank-0', 'n2'], self.nodes('rank-0', 'n2', hostname='rank-0')
        )

    def test_node_that_the_scheduler_names_as_the_server_keeps_that(self):
        members = [dict(member('N1', 'h1'), hostname='n1')]
        self.assertEqual(
            ['N1', 'N2'],
            [
                one['name']
                for one in topology_files.with_nodes(members, ['N1', 'N2'])
            ],
        )

    def test_server_of_an_unknown_host_name_has_its_own(self):
        self.assertEqual(['Rank 0'], self.nodes())
        self.assertEqual(['Rank 0'], self.nodes(hostname=None))


class FormatsTest(base.TestCase):
    def test_blocks_of_slurm(self):
        self.assertEqual(
            'BlockName=switch-a Nodes=n1,n2\n'
            'BlockName=switch-b Nodes=n3\n'
            'BlockName=switch-c Nodes=n4\n'
            'BlockSizes=1\n',
            topology_files.slurm_block_conf(MEMBERS),
        )

    def test_yaml_of_slurm(self):
        """As topology.yaml(5) of Slurm 25.05 describes it."""
        tree, block = yaml.safe_load(topology_files.slurm_yaml(MEMBERS))
        self.assertEqual(
            {
                'topology': 'vhpc-tree',
                'cluster_default': True,
                'tree': {
                    'switches': [
                        {'switch': 'switch-a', 'nodes': 'n1,n2'},
                        {'switch': 'switch-b', 'nodes': 'n3'},
                        {'switch': 'switch-c', 'nodes': 'n4'},
                        {'switch': 'rack-a', 'children': 'switch-a,switch-b'},
                        {'switch': 'rack-b', 'children': 'switch-c'},
                        {'switch': 'vhpc', 'children': 'rack-a,rack-b'},
                    ]
                },
            },
            tree,
        )
        self.assertEqual(
            {
                'topology': 'vhpc-block',
                'cluster_default': False,
                'block': {
                    'block_sizes': [1],
                    'blocks': [
                        {'block': 'switch-a', 'nodes': 'n1,n2'},
                        {'block': 'switch-b', 'nodes': 'n3'},
                        {'block': 'switch-c', 'nodes': 'n4'},
                    ],
                },
            },
            block,
        )

    def test_model_of_topograph(self):
        found = yaml.safe_load(topology_files.topograph(MEMBERS))
        self.assertEqual(
            ['rack-a', 'rack-b'], found['switches']['vhpc']['switches']
        )
        self.assertEqual(['n1', 'n2'], found['switches']['switch-a']['nodes'])
        self.assertEqual({'capacity_block': 'switch-b'}, found['nodes']['n3'])
        self.assertEqual(
            {'nodes': ['n4']}, found['capacity_blocks']['switch-c']
        )

    def test_names_that_look_like_numbers_stay_names(self):
        members = [member('007', 'h', 's'), member('1e3', 'h', 's')]
        tree, _block = yaml.safe_load(topology_files.slurm_yaml(members))
        self.assertEqual('007,1e3', tree['tree']['switches'][0]['nodes'])
        found = yaml.safe_load(topology_files.topograph(members))
        self.assertEqual(['007', '1e3'], list(found['nodes']))

    def test_labels_of_kubernetes(self):
        text = topology_files.kubernetes([MEMBERS[0], member('N9', 'host-9')])
        prefix = 'topology.kubernetes.io/'
        self.assertEqual(
            [
                f'kubectl label --overwrite node n9 {prefix}host=host-9 '
                f'{prefix}switch- {prefix}rack-',
                f'kubectl label --overwrite node n3 {prefix}host=host-3 '
                f'{prefix}switch=switch-b {prefix}rack=rack-a',
            ],
            text.splitlines(),
        )


class NamesTest(base.TestCase):
    def test_name_that_could_break_a_file_is_refused(self):
        for name in (
            'n1,n2',
            'n1 Nodes=ALL',
            'n1\nSwitchName=x',
            'n[1-9]',
            'n1;reboot',
            '"n1"',
            '',
            '-n',
            'n' * 64,
        ):
            for form in topology_files.TOPOLOGY_FORMATS.values():
                error = self.assertRaises(
                    ValueError, form, [member(name, 'h')]
                )
                self.assertIn('openstack server set --hostname', str(error))
                self.assertNotIn('\n', str(error))

    def test_equal_names_are_refused(self):
        error = self.assertRaises(
            ValueError,
            topology_files.slurm_conf,
            [member('n1', 'h1'), member('n1', 'h2')],
        )
        self.assertIn('two members have the name n1', str(error))
