# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Pins of the balance and io_pool policies for views of a host."""

import dataclasses

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.pinning import balance, base, io_pool
from nova_vhpc.tests import base as tests_base
from nova_vhpc.tests.unit.control.pinning import topologies

EIGHT = topologies.host(sockets=2, cores=4)
IO = model.Phase.IO
COMPUTING = model.Phase.COMPUTING


def vm(uuid, vcpus=2, **kwargs):
    kwargs.setdefault('workload', model.Workload.PARALLEL)
    return model.VmView(uuid, vcpus, **kwargs)


def pin(policy, *vms, io=(), cpus=EIGHT, clear_cpus=(), loose=(), idle=()):
    view = model.HostView(1, 0, 100_000, cpus, vms)
    return policy.pin(
        base.PinContext(
            view,
            {one.uuid: IO if one.uuid in io else COMPUTING for one in vms},
            frozenset(clear_cpus),
            frozenset(loose),
            frozenset(idle),
        )
    )


def used(decision, uuid):
    return frozenset().union(*decision.pins[uuid])


class NoneTest(tests_base.TestCase):
    def test_no_vm_is_pinned(self):
        policy = base.NonePolicy(control_config.ControlConfig())
        self.assertEqual({}, dict(pin(policy, vm('a')).pins))


class BothTest(tests_base.TestCase):
    """What holds for both policies that pin."""

    def setUp(self):
        super().setUp()
        config = control_config.ControlConfig()
        self.policies = (
            balance.BalancePolicy(config),
            io_pool.IoPoolPolicy(config),
        )

    def test_dedicated_and_numa_guests_are_not_pinned(self):
        for policy in self.policies:
            decision = pin(policy, vm('a', repin=False), io={'a'})
            self.assertEqual({}, dict(decision.pins))
            self.assertEqual(frozenset(), decision.in_io_pool)

    def test_vm_without_an_allowed_cpu_gets_a_diagnostic(self):
        for policy in self.policies:
            decision = pin(policy, vm('a', allowed_cpus=frozenset((98, 99))))
            self.assertEqual({}, dict(decision.pins))
            self.assertEqual(
                (model.Diagnostic('a', base.NO_CPU),), decision.ignored
            )


class BalanceTest(tests_base.TestCase):
    def policy(self):
        return balance.BalancePolicy(control_config.ControlConfig())

    def test_only_parallel_vms_are_pinned(self):
        decision = pin(
            self.policy(), vm('a'), vm('b', workload=model.Workload.GENERAL)
        )
        self.assertEqual({'a'}, set(decision.pins))

    def test_vm_is_pinned_to_allowed_cpus_only(self):
        decision = pin(
            self.policy(), vm('a', allowed_cpus=frozenset((2, 3, 99)))
        )
        self.assertEqual(frozenset((2, 3)), used(decision, 'a'))

    def test_reserved_cpus_are_left_and_later_used_again(self):
        policy = self.policy()
        vms = [vm(name, 3) for name in 'abcd']
        for clear, free in (
            ((), set()),
            ((6, 3), {6, 3}),
            ((6, 5), {6, 5}),
            ((), {6, 5}),
        ):
            decision = pin(policy, *vms, clear_cpus=clear)
            on = set().union(*(used(decision, one.uuid) for one in vms))
            self.assertEqual(set(range(8)) - free, on)
        # VMs move back only after a while.
        for _ in range(300):
            decision = pin(policy, *vms)
        on = set().union(*(used(decision, one.uuid) for one in vms))
        self.assertEqual(set(range(8)), on)

    def test_vm_leaves_reserved_cpus_only_if_it_fits_beside_them(self):
        for vcpus, free in (6, {6, 7}), (7, set()):
            decision = pin(
                self.policy(),
                vm('a', vcpus),
                vm('b', vcpus),
                clear_cpus={6, 7},
            )
            on = used(decision, 'a') | used(decision, 'b')
            self.assertEqual(set(range(8)) - free, on)

    def test_only_the_vm_on_a_reserved_cpu_moves(self):
        policy = self.policy()
        vms = [vm(name) for name in 'abcd']
        before = pin(policy, *vms).pins
        after = pin(policy, *vms, clear_cpus={7}).pins
        moved = [name for name in 'abcd' if before[name] != after[name]]
        self.assertEqual(1, len(moved))

    def test_unpinned_vm_has_no_pins_and_is_no_load(self):
        policy = self.policy()
        vms = [vm(name, 8) for name in 'abc'] + [vm('d', 4), vm('e', 4)]
        decision = pin(policy, *vms, loose='abc')
        self.assertEqual({'d', 'e'}, set(decision.pins))
        self.assertFalse(used(decision, 'd') & used(decision, 'e'))
        self.assertEqual(set('abcde'), set(pin(policy, *vms).pins))

    def test_idle_vm_is_pinned_and_is_no_load(self):
        policy = self.policy()
        vms = [vm(name, 4) for name in 'abcd']
        decision = pin(policy, *vms, idle='ac')
        self.assertFalse(used(decision, 'b') & used(decision, 'd'))
        for name in 'ac':
            self.assertEqual(4, len(used(decision, name)))
        # A VM that is no longer idle gets CPUs of its own as far as possible.
        decision = pin(policy, vms[0], vms[1], vms[2], idle='c')
        self.assertFalse(used(decision, 'a') & used(decision, 'b'))
        for _ in range(200):
            again = pin(policy, vms[0], vms[1], vms[2], idle='c')
            self.assertEqual(decision.pins, again.pins)

    def test_vm_that_does_not_fit_elsewhere_uses_reserved_cpus(self):
        for one in (
            vm('a', 7),
            vm('a', 9),
            vm('a', 2, allowed_cpus=frozenset({6, 7})),
        ):
            for clear in ((6, 7), range(8), (99, *range(8))):
                decision = pin(self.policy(), one, clear_cpus=clear)
                self.assertEqual((), decision.ignored)
                self.assertEqual(min(one.vcpus, 8), len(used(decision, 'a')))

    def beside_one_in_each_socket(self, paradigm):
        """Return pins of a new VM; one CPU of each socket is in use."""
        policy = self.policy()
        present = vm('m', allowed_cpus=frozenset((0, 4)))
        pin(policy, present)
        return pin(policy, present, vm('a', 4, paradigm=paradigm))

    def test_openmp_vm_is_pinned_in_one_socket(self):
        decision = self.beside_one_in_each_socket(model.Paradigm.OPENMP)
        sockets = {cpu.id: cpu.socket for cpu in EIGHT}
        self.assertEqual(1, len({sockets[c] for c in used(decision, 'a')}))

    def test_mpi_vm_is_pinned_to_idle_cpus_of_all_sockets(self):
        decision = self.beside_one_in_each_socket(model.Paradigm.MPI)
        self.assertFalse(used(decision, 'm') & used(decision, 'a'))

    def test_members_of_a_cluster_do_not_share_a_cpu(self):
        decision = pin(
            self.policy(),
            vm('a', 1, cluster='c'),
            vm('b', 1),
            vm('d', 1, cluster='c'),
            cpus=EIGHT[:2],
        )
        self.assertFalse(used(decision, 'a') & used(decision, 'd'))

    def test_pins_are_adopted_after_a_restart(self):
        # A new agent would choose other pins on an empty host.
        pins = (frozenset((5,)), frozenset((2,)))
        adopted = vm('a', in_force=model.CpuTune(vcpu_pins=pins))
        self.assertEqual({'a': pins}, dict(pin(self.policy(), adopted).pins))


class IoPoolTest(tests_base.TestCase):
    # If the I/O pool is CPUs 6 and 7, it may use no other CPUs.
    io_only = vm(
        'web',
        workload=model.Workload.GENERAL,
        allowed_cpus=frozenset((6, 7)),
    )

    def policy(self, **kwargs):
        kwargs.setdefault('pool_shrink_periods', 5)
        return io_pool.IoPoolPolicy(control_config.ControlConfig(**kwargs))

    def test_pools_are_in_separate_sockets(self):
        decision = pin(self.policy(), vm('a', 4), vm('b', 4), io={'a'})
        self.assertEqual(frozenset(range(4, 8)), used(decision, 'a'))
        self.assertEqual(frozenset(range(4)), used(decision, 'b'))
        self.assertEqual({'a'}, decision.in_io_pool)

    def test_siblings_do_not_share_a_cpu_in_either_pool(self):
        decision = pin(self.policy(), vm('a', 4), vm('b', 4), io={'a'})
        for pins in decision.pins.values():
            self.assertEqual([1] * 4, [len(one) for one in pins])
            self.assertEqual(4, len(set(pins)))

    def test_reserved_cpus_of_the_computing_pool_are_left(self):
        policy = self.policy()
        vms = [vm(name) for name in 'abcd']
        for clear in ((), {3, 7}):
            decision = pin(policy, *vms, io={'a'}, clear_cpus=clear)
            on = set().union(*(used(decision, name) for name in 'bcd'))
            self.assertEqual(decision.pools.computing - set(clear), on)
            self.assertEqual(decision.pools.io, used(decision, 'a'))

    def test_unpinned_vm_gets_the_whole_computing_pool(self):
        decision = pin(self.policy(), vm('a'), vm('b'), io={'a'}, loose='ab')
        self.assertEqual((decision.pools.computing,) * 2, decision.pins['b'])
        self.assertEqual([1, 1], [len(one) for one in decision.pins['a']])

    def test_idle_vm_is_no_load_in_the_computing_pool(self):
        vms = [vm(name) for name in 'abcd']
        decision = pin(self.policy(), *vms, vm('e'), io={'e'}, idle='ac')
        self.assertFalse(used(decision, 'b') & used(decision, 'd'))
        self.assertEqual(2, len(used(decision, 'a')))

    def test_general_vm_gets_the_whole_computing_pool(self):
        decision = pin(
            self.policy(),
            vm('a', 4),
            vm('web', 2, workload=model.Workload.GENERAL),
            io={'a'},
        )
        self.assertEqual((decision.pools.computing,) * 2, decision.pins['web'])

    def test_computing_vms_use_all_cpus_while_the_io_pool_is_idle(self):
        decision = pin(self.policy(), vm('a', 8), vm('b', 8))
        self.assertEqual(frozenset(range(8)), used(decision, 'a'))
        self.assertTrue(decision.pools.io)

    def test_general_vm_is_not_pinned_while_it_may_use_all_cpus(self):
        web = vm('web', workload=model.Workload.GENERAL)
        self.assertEqual({}, dict(pin(self.policy(), web).pins))

    def test_pins_follow_a_growing_io_pool(self):
        policy = self.policy()
        web = vm('web', workload=model.Workload.GENERAL)
        for io in ({'a'}, {'a', 'b'}):
            decision = pin(policy, vm('a', 2), vm('b', 4), web, io=io)
            self.assertEqual(
                sum({'a': 2, 'b': 4}[u] for u in io), len(decision.pools.io)
            )
            self.assertEqual(decision.pools.computing, used(decision, 'web'))
            for uuid in io:
                self.assertLessEqual(used(decision, uuid), decision.pools.io)

    def test_no_pools_and_a_diagnostic_on_a_host_of_one_cpu(self):
        decision = pin(self.policy(), vm('a', 1), io={'a'}, cpus=EIGHT[:1])
        self.assertIsNone(decision.pools)
        self.assertEqual(frozenset(), decision.in_io_pool)
        self.assertEqual('', decision.ignored[0].uuid)
        self.assertIn('no pools', decision.ignored[0].reason)

    def test_vm_not_allowed_in_the_io_pool_stays_out(self):
        decision = pin(
            self.policy(),
            vm('a', 2),
            vm('b', 2, allowed_cpus=frozenset((0, 1))),
            io={'a', 'b'},
        )
        self.assertEqual(frozenset((0, 1)), used(decision, 'b'))
        self.assertEqual({'a'}, decision.in_io_pool)
        self.assertEqual('b', decision.ignored[-1].uuid)
        self.assertIn('in the I/O pool', decision.ignored[-1].reason)

    def test_no_vm_enters_io_pool_beside_one_as_wide_as_the_host(self):
        decision = pin(self.policy(), vm('a', 1), vm('wide', 8), io={'a'})
        self.assertEqual(frozenset(), decision.in_io_pool)
        self.assertEqual(['a'], [one.uuid for one in decision.ignored])
        self.assertIn('as many CPUs as the host', decision.ignored[0].reason)

    def test_general_vm_without_a_computing_cpu_is_not_pinned(self):
        decision = pin(
            self.policy(io_pool_cpus=frozenset((6, 7))),
            self.io_only,
            vm('a', io_pool=model.IoPoolUse.ALWAYS),
            io={'a'},
        )
        self.assertNotIn('web', decision.pins)
        self.assertIn('not pinned', decision.ignored[-1].reason)

    def test_vm_allowed_only_in_the_io_pool_enters_it(self):
        decision = pin(
            self.policy(io_pool_cpus=frozenset((6, 7))),
            self.io_only,
            io={'web'},
        )
        self.assertEqual({'web'}, decision.in_io_pool)
        self.assertEqual((frozenset((6, 7)),) * 2, decision.pins['web'])

    def test_no_member_enters_io_pool_unless_all_in_io_phase_can(self):
        for narrow in ({}, {'allowed_cpus': frozenset((0, 1, 2, 7))}):
            width = 2 if narrow else 4
            decision = pin(
                self.policy(io_pool_cpus=frozenset((6, 7))),
                vm('small', cluster='c'),
                vm('other', width, cluster='c', **narrow),
                vm('d', cluster='d'),
                # No diagnostic: this member is not in the I/O phase.
                vm('never', cluster='c'),
                io={'small', 'other', 'd'},
            )
            self.assertEqual({'d'}, decision.in_io_pool)
            reasons = {one.uuid: one.reason for one in decision.ignored}
            self.assertEqual({'small', 'other'}, set(reasons))
            self.assertIn(f'other has {width} vCPUs', reasons['small'])

    def test_member_enters_io_pool_beside_a_wide_computing_member(self):
        for config in ({}, {'io_pool_cpus': frozenset((6, 7))}):
            decision = pin(
                self.policy(**config),
                vm('small', cluster='c'),
                vm('wide', 6, cluster='c'),
                io={'small'},
            )
            self.assertEqual({'small'}, decision.in_io_pool)
            self.assertEqual((), decision.ignored)

    def test_io_pool_is_not_sized_for_members_that_stay_out(self):
        decision = pin(
            self.policy(),
            vm('small', cluster='c'),
            vm('wide', 6, cluster='c'),
            vm('q', 4),
            io={'small', 'wide'},
        )
        self.assertEqual(frozenset(), decision.in_io_pool)
        self.assertEqual(1, len(decision.pools.io))

    def test_vm_wider_than_computing_pool_also_uses_the_io_pool(self):
        for policy, wide in (
            (self.policy(io_pool_cpus=frozenset(range(1, 8))), vm('w', 8)),
            (
                self.policy(),
                vm('w', 4, allowed_cpus=frozenset((0, 2, 4, 7))),
            ),
        ):
            decision = pin(policy, wide, vm('i', 4), io={'i'})
            self.assertEqual({'i'}, decision.in_io_pool)
            self.assertEqual(wide.vcpus, len(used(decision, 'w')))
            self.assertEqual(['w'], [one.uuid for one in decision.ignored])
            self.assertIn('computing pool', decision.ignored[0].reason)

    def test_vm_wider_than_configured_pool_stays_out_with_diagnostic(self):
        decision = pin(
            self.policy(io_pool_cpus=frozenset((6, 7))),
            vm('wide', 4),
            vm('fits', 2),
            io={'wide', 'fits'},
        )
        self.assertEqual({'fits'}, decision.in_io_pool)
        self.assertEqual(4, len(used(decision, 'wide')))
        self.assertLessEqual(used(decision, 'wide'), decision.pools.computing)
        (diagnostic,) = decision.ignored
        self.assertEqual('wide', diagnostic.uuid)
        self.assertIn('has 4 vCPUs', diagnostic.reason)
        self.assertIn('I/O pool (2 CPUs', diagnostic.reason)

    def test_vm_wider_than_its_allowed_part_of_the_pool_stays_out(self):
        decision = pin(
            self.policy(io_pool_cpus=frozenset((4, 5, 6, 7))),
            vm('a', 3, allowed_cpus=frozenset((0, 1, 2, 7))),
            vm('b', 4),
            io={'a', 'b'},
        )
        self.assertEqual({'b'}, decision.in_io_pool)
        self.assertEqual(3, len(used(decision, 'a')))
        self.assertEqual('a', decision.ignored[-1].uuid)

    def test_vm_wider_than_both_pools_uses_all_its_allowed_cpus(self):
        # As in the computing phase, it may use all of its CPUs.
        for io in ({'a'}, set()):
            decision = pin(
                self.policy(io_pool_cpus=frozenset((4, 5, 6, 7))),
                vm('a', 4, allowed_cpus=frozenset((0, 1, 6, 7))),
                io=io,
            )
            self.assertEqual(4, len(used(decision, 'a')))
            self.assertEqual(frozenset(), decision.in_io_pool)

    def test_vm_of_two_vcpus_stays_out_on_a_host_of_two_cpus(self):
        decision = pin(
            self.policy(), vm('a', 2), vm('b', 2), io={'a'}, cpus=EIGHT[:2]
        )
        for uuid in 'ab':
            self.assertEqual(frozenset((0, 1)), used(decision, uuid))
        self.assertEqual(frozenset(), decision.in_io_pool)
        self.assertTrue(decision.pools.io)
        self.assertEqual(['a'], [one.uuid for one in decision.ignored])

    def test_general_vm_wider_than_the_io_pool_enters_it(self):
        web = vm('web', 4, workload=model.Workload.GENERAL)
        decision = pin(
            self.policy(io_pool_cpus=frozenset((7,))), web, io={'web'}
        )
        self.assertEqual({'web'}, decision.in_io_pool)
        self.assertEqual((), decision.ignored)

    def test_phase_change_moves_only_its_own_vm(self):
        policy = self.policy()
        vms = [vm(name, 2) for name in 'abcd']
        pin(policy, *vms, io={'a'})
        before = pin(policy, *vms, io={'a'})
        after = pin(policy, *vms, io=())
        again = pin(policy, *vms, io={'a'})
        for name in 'bcd':
            self.assertEqual(before.pins[name], after.pins[name])
            self.assertEqual(before.pins[name], again.pins[name])

    def test_pins_are_adopted_after_a_restart(self):
        # A new agent would choose these CPUs in the opposite order.
        in_force = {'a': (7, 6), 'b': (3, 1)}
        pins = {
            uuid: tuple(frozenset((cpu,)) for cpu in cpus)
            for uuid, cpus in in_force.items()
        }
        vms = [
            vm(uuid, in_force=model.CpuTune(vcpu_pins=pins[uuid]))
            for uuid in 'ab'
        ]
        decision = pin(
            self.policy(io_pool_cpus=frozenset((6, 7))), *vms, io={'a'}
        )
        self.assertEqual(pins, dict(decision.pins))


class FactsTest(tests_base.TestCase):
    """Pins are worked out again only if something relevant changed."""

    CHANGES = (
        {'vcpus': 3},
        {'workload': model.Workload.GENERAL},
        {'paradigm': model.Paradigm.OPENMP},
        {'cluster': 'other'},
        {'repin': False},
        {'allowed_cpus': frozenset({1, 6})},
        {'uuid': 'new'},
    )

    def views(self):
        """Yield views, each with one difference from the one before."""
        vms = [vm(name, 2, cluster='c') for name in 'abcd']
        yield vms, {}
        for change in self.CHANGES:
            yield [vms[0], dataclasses.replace(vms[1], **change), *vms[2:]], {}
            yield vms, {}
        for host in (
            {'io': 'b'},
            {'clear_cpus': (0, 1)},
            {'loose': 'b'},
            {'idle': 'b'},
            {'cpus': EIGHT[:4]},
            {'cpus': EIGHT[:1]},
        ):
            yield vms, host
            yield vms, {}
        yield vms[1:], {}

    def test_pins_equal_those_of_a_policy_without_cache(self):
        config = control_config.ControlConfig(
            rebalance_periods=2, pool_shrink_periods=3
        )
        for policy in (balance.BalancePolicy, io_pool.IoPoolPolicy):
            subject, forgetful = policy(config), policy(config)
            for vms, host in self.views():
                # In the meantime pools shrink and loads are balanced.
                for _ in range(5):
                    forgetful._facts = ()
                    self.assertEqual(
                        pin(forgetful, *vms, **host),
                        pin(subject, *vms, **host),
                    )
