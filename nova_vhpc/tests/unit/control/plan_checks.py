# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Checks that every plan must pass, whatever the view."""

import dataclasses

from nova_vhpc.control import bandwidth, model
from nova_vhpc.tests import base


def after(in_force: model.CpuTune, writes: model.CpuTune) -> model.CpuTune:
    """Return the settings in force after a plan's writes."""
    return dataclasses.replace(
        in_force,
        **{
            field.name: value
            for field in dataclasses.fields(writes)
            if (value := getattr(writes, field.name)) is not None
        },
    )


class PlanTestCase(base.TestCase):
    """Checks plans against the view that they were made from."""

    def check(self, view: model.HostView, plan: model.Plan) -> None:
        """Assert all that must hold for any plan."""
        vms = {vm.uuid: vm for vm in view.vms}
        # Only managed VMs are planned.
        self.assertLessEqual(set(plan.vms), set(vms))
        for uuid in vms.keys() - plan.vms.keys():
            self.assertIn(uuid, {one.uuid for one in plan.ignored})
        for diagnostic in plan.ignored:
            for fault in ('failed', 'cannot be planned'):
                self.assertNotIn(fault, diagnostic.reason)
        self.check_pools(view, plan)
        self.check_windows(view, plan)
        for uuid, planned in plan.vms.items():
            source = vms[uuid]
            self.check_bandwidth(planned, source, view.limits)
            self.check_pins(planned, source, view, plan)
            self.check_writes(planned, source)

    def check_pools(self, view: model.HostView, plan: model.Plan) -> None:
        """Neither pool is empty, and no CPU is in both."""
        if plan.pools is None:
            return
        io, computing = plan.pools.io, plan.pools.computing
        self.assertTrue(io and computing)
        self.assertFalse(io & computing)
        self.assertLessEqual(io | computing, {cpu.id for cpu in view.cpus})

    def check_windows(self, view: model.HostView, plan: model.Plan) -> None:
        """Windows write shares, so they name planned VMs only."""
        if plan.windows is None:
            return
        limits = view.limits
        for shares in (
            plan.windows.shares_after,
            *(turn.shares for turn in plan.windows.turns),
        ):
            self.assertLessEqual(set(shares), set(plan.vms))
            for value in shares.values():
                self.assertTrue(
                    limits.min_shares <= value <= limits.max_shares
                    or (limits.can_idle and value == model.IDLE_SHARES)
                )

    def check_bandwidth(
        self,
        planned: model.VmPlan,
        source: model.VmView,
        limits: model.ActuatorLimits,
    ) -> None:
        """Bandwidth is within all limits and keeps the CPU share."""
        tune, share = planned.tune, source.original.share
        self.assertEqual(tune.period_us is None, tune.quota_us is None)
        by_windows = planned.reason == 'gang window'
        if tune.shares is not None:
            self.assertTrue(
                limits.min_shares <= tune.shares <= limits.max_shares
            )
        if tune.period_us is None or tune.quota_us is None:
            self.assertTrue(planned.slice_us is None or by_windows)
            return
        for low, high in (
            (1_000, 1_000_000),
            (limits.min_period_us, limits.max_period_us),
        ):
            self.assertTrue(low <= tune.period_us <= high, tune)
        if tune.quota_us != model.UNLIMITED:
            for low, high in (
                (1_000, 17_592_186_044_415),
                (limits.min_quota_us, limits.max_quota_us),
            ):
                self.assertTrue(low <= tune.quota_us <= high, tune)
        if share is None:
            # A quota as long as the period does not throttle.
            self.assertIn(tune.quota_us, (-1, tune.period_us))
        else:
            self.assertAlmostEqual(share, tune.share or 0.0, delta=share / 100)
        if planned.slice_us is None or by_windows:
            # Only the original bandwidth leaves the kernel's own slice.
            self.assertEqual(
                bandwidth.of_tune(source.original), bandwidth.of_tune(tune)
            )
        else:
            self.assertEqual(planned.slice_us, tune.quota_us)
            self.assertGreaterEqual(
                planned.slice_us, limits.effective_min_slice_us
            )

    def check_pins(
        self,
        planned: model.VmPlan,
        source: model.VmView,
        view: model.HostView,
        plan: model.Plan,
    ) -> None:
        """Pins are CPUs of the host, allowed to the VM, and of its pool."""
        pins = planned.tune.vcpu_pins
        in_io_pool = planned.reason == 'I/O pool'
        if not source.repin:
            self.assertIsNone(pins)
            self.assertFalse(in_io_pool)
            return
        if pins is None or (
            pins == source.original.vcpu_pins and not in_io_pool
        ):
            return
        self.assertEqual(source.vcpus, len(pins))
        allowed = frozenset(cpu.id for cpu in view.cpus)
        if source.allowed_cpus is not None:
            allowed &= source.allowed_cpus
        used = frozenset().union(*pins)
        self.assertTrue(all(pins))
        self.assertLessEqual(used, allowed)
        if plan.pools is None:
            self.assertFalse(in_io_pool)
        elif in_io_pool:
            self.assertEqual(model.Phase.IO, planned.phase)
            self.assertLessEqual(used, plan.pools.io)
        else:
            pool = plan.pools.computing
            if plan.pools.lent:
                pool |= plan.pools.io
            if not used <= pool:
                # Only if its vCPUs would share CPUs, and with a diagnostic.
                self.assertLess(len(pool & allowed), source.vcpus)
                self.assertIn(
                    source.uuid,
                    {
                        one.uuid
                        for one in plan.ignored
                        if 'too many for the computing pool' in one.reason
                    },
                )
            if planned.phase == model.Phase.IO:
                # It may stay out of the pool, but with a diagnostic.
                self.assertIn(source.uuid, {one.uuid for one in plan.ignored})

    def check_writes(
        self, planned: model.VmPlan, source: model.VmView
    ) -> None:
        """Writes lead to the planned settings, and no write is needless."""
        tune, writes, was = planned.tune, planned.writes, source.in_force
        will_be = was
        if writes is not None:
            # One without the other would change the CPU share.
            self.assertEqual(writes.period_us is None, writes.quota_us is None)
            will_be = after(was, writes)
            self.assertNotEqual(was, will_be)
        if tune.period_us is not None:
            self.assertEqual(
                bandwidth.of_tune(tune), bandwidth.of_tune(will_be)
            )
        for name in ('shares', 'vcpu_pins'):
            if getattr(tune, name) is not None:
                self.assertEqual(getattr(tune, name), getattr(will_be, name))
        if all(
            getattr(tune, field.name) in (None, getattr(was, field.name))
            for field in dataclasses.fields(tune)
        ):
            self.assertIsNone(writes)
