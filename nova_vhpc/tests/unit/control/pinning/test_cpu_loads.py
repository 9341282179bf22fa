# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The CPUs of each VM, worked out once per set."""

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control import model
from nova_vhpc.control.pinning import cpu_loads
from nova_vhpc.tests import base

SETS = st.frozensets(st.integers(0, 5))


def vm(allowed):
    return model.VmView('a', 1, allowed_cpus=allowed)


class UsableCpusTest(base.TestCase):
    @given(st.lists(st.tuples(SETS, st.lists(st.none() | SETS)), max_size=6))
    def test_usable_cpus_are_those_of_both_host_and_vm(self, ticks):
        subject = cpu_loads.UsableCpus()
        for host, vms in ticks:
            subject.update(tuple(model.Cpu(cpu) for cpu in sorted(host)))
            for allowed in vms:
                self.assertEqual(
                    host if allowed is None else host & allowed,
                    subject.of(vm(allowed)),
                )

    def test_equal_sets_give_the_same_object(self):
        subject = cpu_loads.UsableCpus()
        host = tuple(model.Cpu(cpu) for cpu in range(4))
        self.assertTrue(subject.update(host))
        first = subject.of(vm(frozenset((1, 2, 9))))
        self.assertFalse(subject.update(host))
        self.assertIs(first, subject.of(vm(frozenset((9, 2, 1)))))

    def test_more_than_max_sets_are_forgotten_and_worked_out_anew(self):
        subject = cpu_loads.UsableCpus()
        host = (model.Cpu(0),)
        subject.update(host)
        for cpu in range(cpu_loads.MAX_SETS + 1):
            subject.of(vm(frozenset((cpu,))))
        self.assertTrue(subject.update(host))
        self.assertEqual(frozenset((0,)), subject.of(vm(frozenset((0,)))))
