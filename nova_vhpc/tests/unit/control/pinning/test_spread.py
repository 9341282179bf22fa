# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Separate CPUs for siblings, even loads, few moves."""

import collections

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control import model
from nova_vhpc.control.pinning import cpu_loads, spread
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control.pinning.topologies import host

EIGHT = host()
ALL = frozenset(range(8))


def request(uuid, vcpus=2, allowed_cpus=ALL, **kwargs):
    return cpu_loads.Request(uuid, vcpus, allowed_cpus, **kwargs)


def single(*cpus):
    return tuple(frozenset((cpu,)) for cpu in cpus)


def cpus_of(pins):
    return [cpu for pin in pins for cpu in pin]


def counts(pins):
    result = collections.Counter()
    for vm in pins.values():
        result.update(cpus_of(vm))
    return result


class PlaceTest(base.TestCase):
    def assign(self, *requests, cpus=EIGHT, in_force=None):
        return spread.Spreader(50).assign(requests, cpus, in_force or {})

    def test_siblings_do_not_share_a_cpu(self):
        pins = self.assign(*[request(f'vm{n}', 8) for n in range(3)])
        for vm in pins.values():
            self.assertEqual(8, len(set(cpus_of(vm))))

    def test_vcpus_beyond_the_cpus_are_shared_out_evenly(self):
        pins = self.assign(request('a', 5, frozenset((0, 1))))
        self.assertEqual([2, 3], sorted(counts(pins).values()))

    def test_each_cpu_gets_as_many_vcpus(self):
        pins = self.assign(*[request(f'vm{n}') for n in range(12)])
        self.assertEqual({3}, set(counts(pins).values()))

    def test_wide_vms_share_cpus_beside_narrow_ones(self):
        # At equal weights a fair share is two CPUs for each VM, so the two
        # wide VMs must share four CPUs.
        pins = self.assign(
            *[request(f'narrow{n}', 2) for n in range(2)],
            *[request(f'wide{n}', 4) for n in range(2)],
        )
        self.assertEqual(set(pins['wide0']), set(pins['wide1']))
        for narrow in ('narrow0', 'narrow1'):
            for uuid in pins.keys() - {narrow}:
                self.assertTrue(set(pins[narrow]).isdisjoint(pins[uuid]))

    def test_heavy_vms_do_not_share_cpus(self):
        pins = self.assign(
            *[request(f'light{n}', 8) for n in range(2)],
            request('heavy', 2, weight=8),
            request('heavier', 2, weight=8),
            request('other', 2),
        )
        self.assertTrue(set(pins['heavy']).isdisjoint(pins['heavier']))
        self.assertTrue(set(pins['other']).isdisjoint(pins['heavy']))
        self.assertTrue(set(pins['other']).isdisjoint(pins['heavier']))

    def test_members_of_a_cluster_do_not_share_a_cpu(self):
        # Filling the CPUs in turn would put members on the same CPU.
        two = frozenset((0, 1))
        pins = self.assign(
            *[
                request(f'{cluster}{n}', 1, two, cluster=cluster)
                for n, cluster in enumerate('abab')
            ]
        )
        self.assertNotEqual(pins['a0'], pins['a2'])
        self.assertNotEqual(pins['b1'], pins['b3'])

    def test_second_thread_of_a_core_is_used_last(self):
        # In the first numbering the threads of a core are far apart, in the
        # second adjacent.
        last = host(sockets=1, cores=4, threads=2)
        beside = tuple(model.Cpu(n, core=n // 2) for n in range(8))
        for cpus in (last, beside):
            cores = {cpu.id: cpu.core for cpu in cpus}
            for vcpus in (4, 6):
                pins = self.assign(request('a', vcpus), cpus=cpus)
                self.assertEqual(vcpus, len(set(pins['a'])))
                self.assertEqual(
                    4, len({cores[c] for c in cpus_of(pins['a'])})
                )

    def test_idle_caches_and_idle_cores_are_used_first(self):
        cpus = tuple(model.Cpu(n, llc=n // 4, core=n // 2) for n in range(8))
        pins = self.assign(*[request(uuid, 1) for uuid in 'abcd'], cpus=cpus)
        used = [cpu for uuid in 'abcd' for cpu in cpus_of(pins[uuid])]
        self.assertEqual([0, 1, 0, 1], [cpu // 4 for cpu in used])
        self.assertEqual(4, len({cpu // 2 for cpu in used}))

    def test_compact_vm_is_in_one_cache(self):
        cpus = host(sockets=2, caches=2, cores=2)
        caches = {cpu.id: cpu.llc for cpu in cpus}
        pins = self.assign(
            *[request(f'vm{n}', 2, ALL, compact=True) for n in range(4)],
            cpus=cpus,
        )
        for vm in pins.values():
            self.assertEqual(1, len({caches[c] for c in cpus_of(vm)}))
        self.assertEqual({1}, set(counts(pins).values()))

    def test_compact_vm_is_in_the_least_loaded_cache(self):
        cpus = host(sockets=2, caches=1, cores=2)
        subject = spread.Spreader(50)
        present = [
            request('x', 2, frozenset((0, 1))),
            request('y', 1, frozenset((2,))),
        ]
        subject.assign(present, cpus, {})
        pins = subject.assign(
            [*present, request('a', 2, frozenset(range(4)), compact=True)],
            cpus,
            {},
        )
        self.assertEqual({2, 3}, set(cpus_of(pins['a'])))

    def test_compact_vm_wider_than_a_cache_is_spread(self):
        cpus = host(sockets=2, caches=2, cores=2)
        pins = self.assign(request('a', 6, ALL, compact=True), cpus=cpus)
        self.assertEqual(6, len(set(cpus_of(pins['a']))))

    def test_restarted_agent_moves_no_vm(self):
        in_force = {'a': single(3, 5), 'b': single(5, 3)}
        self.assertEqual(
            in_force,
            self.assign(request('a'), request('b'), in_force=in_force),
        )

    def test_pins_with_unavoidable_sharing_are_adopted(self):
        two = {'allowed_cpus': frozenset((0, 1))}
        in_force = {'a': single(1, 0, 1, 0)}
        self.assertEqual(
            in_force, self.assign(request('a', 4, **two), in_force=in_force)
        )

    def test_pins_with_avoidable_sharing_are_not_adopted(self):
        pins = self.assign(request('a'), in_force={'a': single(3, 3)})
        self.assertEqual(2, len(set(cpus_of(pins['a']))))

    @given(
        st.lists(
            st.tuples(
                st.integers(1, 12),
                st.frozensets(st.integers(0, 7), min_size=1),
                st.booleans(),
                st.sampled_from(['', 'x', 'y']),
            ),
            max_size=12,
        )
    )
    def test_pins_are_allowed_cpus_with_least_sharing(self, wanted):
        requests = [
            request(
                f'vm{n}', vcpus, allowed_cpus, compact=compact, cluster=cluster
            )
            for n, (vcpus, allowed_cpus, compact, cluster) in enumerate(wanted)
        ]
        pins = self.assign(*requests)
        for one in requests:
            cpus = cpus_of(pins[one.uuid])
            self.assertEqual(one.vcpus, len(cpus))
            self.assertLessEqual(set(cpus), one.allowed_cpus)
            self.assertEqual(
                min(one.vcpus, len(one.allowed_cpus)), len(set(cpus))
            )


class FairLoadTest(base.TestCase):
    def loads(self, *requests):
        return cpu_loads.fair_loads(requests, len(ALL))

    def test_load_is_at_most_a_whole_cpu(self):
        self.assertEqual(
            {'a': cpu_loads.WHOLE, 'b': cpu_loads.WHOLE},
            self.loads(request('a', 2), request('b', 6)),
        )

    def test_loads_are_in_proportion_to_weights(self):
        loads = self.loads(request('a', 8, weight=3), request('b', 8))
        self.assertEqual(
            {'a': 3 * cpu_loads.WHOLE // 4, 'b': cpu_loads.WHOLE // 4}, loads
        )

    def test_idle_vm_has_no_load(self):
        loads = self.loads(request('a', 8), request('b', 8, idle=True))
        self.assertEqual({'a': cpu_loads.WHOLE}, loads)

    def test_vm_of_both_pools_gets_cpus_where_more_is_left(self):
        # Three VMs on the left CPUs, one on the right ones. VM c may use both,
        # and gets CPUs where more is left.
        left, right = frozenset(range(4)), frozenset(range(4, 8))
        apart = [request(f'a{n}', 4, left) for n in range(3)]
        apart.append(request('b', 4, right))
        loads = self.loads(*apart)
        self.assertEqual(cpu_loads.WHOLE, loads['b'])
        self.assertEqual(round(cpu_loads.WHOLE / 3), loads['a0'])
        joined = self.loads(*apart, request('c', 8, ALL))
        self.assertEqual(loads['a0'], joined['a0'])
        self.assertEqual(cpu_loads.WHOLE // 2, joined['b'])
        self.assertEqual(cpu_loads.WHOLE // 4, joined['c'])

    @given(
        st.lists(
            st.tuples(
                st.integers(1, 12),
                st.frozensets(st.integers(0, 7), min_size=1),
                st.integers(1, 10_000),
                st.booleans(),
            ),
            max_size=12,
        )
    )
    def test_load_is_positive_and_at_most_a_cpu(self, wanted):
        requests = [
            request(f'vm{n}', vcpus, allowed_cpus, weight=weight, idle=idle)
            for n, (vcpus, allowed_cpus, weight, idle) in enumerate(wanted)
        ]
        loads = self.loads(*requests)
        for one in requests:
            if one.idle:
                self.assertNotIn(one.uuid, loads)
            else:
                self.assertGreater(loads[one.uuid], 0)
                self.assertLessEqual(loads[one.uuid], cpu_loads.WHOLE)


class StabilityTest(base.TestCase):
    def test_other_vms_stay_when_one_comes_or_goes(self):
        subject = spread.Spreader(50)
        requests = [request(f'vm{n}') for n in range(6)]
        before = dict(subject.assign(requests, EIGHT, {}))
        after = dict(subject.assign(requests[1:], EIGHT, {}))
        for uuid, pins in after.items():
            self.assertEqual(before[uuid], pins)
        more = dict(subject.assign([*requests[1:], request('new')], EIGHT, {}))
        for uuid, pins in after.items():
            self.assertEqual(pins, more[uuid])

    def uneven(self, subject):
        """Return VMs that are all pinned to CPUs 0 to 3."""
        requests = [
            request(f'vm{n}', 2, cpus) for n, cpus in enumerate([ALL] * 4)
        ]
        in_force = {
            'vm0': single(0, 1),
            'vm1': single(0, 1),
            'vm2': single(2, 3),
            'vm3': single(2, 3),
        }
        return requests, in_force

    def test_uneven_loads_are_balanced_one_vm_at_a_time(self):
        subject = spread.Spreader(10)
        requests, in_force = self.uneven(subject)
        before = subject.assign(requests, EIGHT, in_force)
        changed = []
        for _ in range(100):
            after = subject.assign(requests, EIGHT, in_force)
            changed.append(sum(before[uuid] != after[uuid] for uuid in after))
            before = after
        self.assertEqual({1}, set(counts(after).values()))
        self.assertEqual(1, max(changed))
        self.assertEqual(2, sum(changed))
        self.assertEqual([0] * 8, changed[:8])

    def test_wide_vms_share_cpus_when_narrow_ones_come(self):
        subject = spread.Spreader(1)
        wide = [request(f'wide{n}', 4) for n in range(2)]
        alone = subject.assign(wide, EIGHT, {})
        self.assertTrue(set(alone['wide0']).isdisjoint(alone['wide1']))
        requests = [*wide, request('narrow0'), request('narrow1')]
        for _ in range(20):
            pins = subject.assign(requests, EIGHT, {})
        self.assertEqual(set(pins['wide0']), set(pins['wide1']))
        self.assertTrue(set(pins['narrow0']).isdisjoint(pins['wide0']))
        self.assertTrue(set(pins['narrow0']).isdisjoint(pins['narrow1']))

    def test_even_loads_never_change(self):
        subject = spread.Spreader(2)
        requests = [request(f'vm{n}', 3) for n in range(5)]
        before = dict(subject.assign(requests, EIGHT, {}))
        for _ in range(100):
            after = dict(subject.assign(requests, EIGHT, {}))
        self.assertEqual(before, after)

    def test_only_the_vm_that_can_leave_a_shared_cpu_moves(self):
        subject = spread.Spreader(1)
        requests = [
            request('a', 2, frozenset((0, 1))),
            request('b', 1, frozenset((0, 2))),
        ]
        in_force = {'a': single(1, 0), 'b': single(0)}
        for _ in range(5):
            pins = subject.assign(requests, EIGHT, in_force)
        self.assertEqual(single(1, 0), pins['a'])
        self.assertEqual(single(2), pins['b'])

    def test_only_the_vcpu_on_the_shared_cpu_moves(self):
        subject = spread.Spreader(1)
        requests = [
            request('a', 2, frozenset((0, 1, 2))),
            request('b', 1, frozenset((0,))),
        ]
        in_force = {'a': single(0, 1), 'b': single(0)}
        for _ in range(5):
            pins = subject.assign(requests, EIGHT, in_force)
        self.assertEqual(single(2, 1), pins['a'])

    def test_vm_that_vanishes_together_with_a_cpu_is_forgotten(self):
        subject = spread.Spreader(50)
        subject.assign([request('a'), request('b')], EIGHT, {})
        seven = frozenset(range(7))
        pins = subject.assign(
            [request('a', allowed_cpus=seven)], EIGHT[:7], {}
        )
        self.assertEqual({'a'}, set(pins))
        self.assertEqual({'a'}, set(subject._places))

    def test_vanished_vms_are_forgotten(self):
        subject = spread.Spreader(50)
        for n in range(50):
            subject.assign([request(f'vm{n}')], EIGHT, {})
        for kept in (subject._places, subject._placed, subject._pins):
            self.assertEqual(1, len(kept))

    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from('abcdef'),
                st.tuples(
                    st.integers(1, 4),
                    st.frozensets(st.integers(0, 7), min_size=1),
                    st.sampled_from(['', 'x']),
                ),
            ),
            max_size=8,
        )
    )
    def test_counted_loads_equal_the_loads_of_the_pins(self, history):
        subject = spread.Spreader(1)
        for wanted in history:
            requests = [
                request(uuid, vcpus, allowed_cpus, cluster=cluster)
                for uuid, (vcpus, allowed_cpus, cluster) in wanted.items()
            ]
            pins = subject.assign(requests, EIGHT, {})
            self.assertEqual(set(wanted), set(pins))
            load = cpu_loads.fair_loads(requests, len(ALL))
            expected = cpu_loads.CpuLoads(EIGHT)
            for one in requests:
                expected.add(
                    one, tuple(cpus_of(pins[one.uuid])), load[one.uuid]
                )
            self.assertEqual(vars(expected), vars(subject._loads))
