# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Random hosts and named hosts."""

from nova_vhpc.tests import base
from nova_vhpc_lab.sim import random_hosts


class TestRandomHosts(base.TestCase):
    def setUp(self):
        super().setUp()
        self.hosts = [
            random_hosts.make(name)[0] for name in random_hosts.seeds(1, 300)
        ]

    def test_same_seed_makes_the_same_host(self):
        for host in self.hosts[:20]:
            self.assertEqual(host, random_hosts.make(host.name)[0])

    def test_hosts_differ(self):
        self.assertEqual(
            {2, 4, 8, 12, 16, 24, 32, 48, 64},
            {host.cpus for host in self.hosts},
        )
        self.assertEqual({250, 1_000}, {host.hz for host in self.hosts})
        self.assertEqual({1, 2}, {host.sockets for host in self.hosts})

    def test_every_host_has_vms_that_opted_in(self):
        for host in self.hosts:
            self.assertTrue(any(vm.opted_in for vm in host.vms), host)

    def test_every_vm_fits_its_cpus(self):
        for host in self.hosts:
            for vm in host.vms:
                cpus = vm.allowed_cpus or frozenset(range(host.cpus))
                self.assertLessEqual(vm.vcpus, len(cpus), host)
                self.assertLess(max(cpus), host.cpus)

    def test_names_are_unique(self):
        for host in self.hosts:
            self.assertEqual(len(host.vms), len({vm.name for vm in host.vms}))

    def test_overcommit_is_between_one_and_about_four(self):
        for host in self.hosts:
            vcpus = sum(vm.vcpus for vm in host.vms)
            self.assertGreaterEqual(vcpus, min(host.cpus, 2))
            self.assertLess(vcpus, 4 * host.cpus + 4 * 16 + 4 * host.cpus)

    def test_named_hosts_carry_their_names(self):
        for name in random_hosts.NAMED:
            self.assertEqual(name, random_hosts.make(name)[0].name)

    def test_unknown_host_is_refused(self):
        error = self.assertRaises(ValueError, random_hosts.make, 'nowhere')
        self.assertIn('three-equal-gangs', str(error))
