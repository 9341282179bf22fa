# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The gang policy with one part taken out, to show what that part gives."""

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.control.gang import feedback, policy, stock_demand, weights
from nova_vhpc.control.pinning import balance
from nova_vhpc.control.predictors import last_value
from nova_vhpc.control.slices import base


class _WithoutPauseCorrection(policy.GangPolicy):
    """Pauses keep the lengths that arithmetic gives them."""

    def __init__(self, config: control_config.ControlConfig) -> None:
        super().__init__(config)
        self.feedback = _NoPauseCorrection(config.harm_limit)


class _NoPauseCorrection(feedback.Feedback):
    def advance(self, *args: Any, **kwargs: Any) -> None:
        super().advance(*args, **kwargs)
        self.pause_correction = 0.0


class _WithoutShareCorrection(policy.GangPolicy):
    """Windows keep the lengths that arithmetic gives them."""

    def __init__(self, config: control_config.ControlConfig) -> None:
        super().__init__(config)
        self.feedback = _NoShareCorrection(config.harm_limit)


class _NoShareCorrection(feedback.Feedback):
    def correction(self, uuids: Iterable[str]) -> float:
        return 0.0


class _WithoutHarmLimit(policy.GangPolicy):
    """Windows are played whatever they cost."""

    def __init__(self, config: control_config.ControlConfig) -> None:
        super().__init__(dataclasses.replace(config, harm_limit=1.0))


class _WithoutPlacement(policy.GangPolicy):
    """The kernel chooses the CPUs of favoured gangs."""

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        decision = super().decide(context)
        if decision.windows is None:
            return decision
        turns = tuple(
            dataclasses.replace(turn, cpus={})
            for turn in decision.windows.turns
        )
        windows = dataclasses.replace(decision.windows, turns=turns)
        return dataclasses.replace(decision, windows=windows)


class _WithoutSides(policy.GangPolicy):
    """Gangs stay on the CPUs that they were given first."""

    side_periods = sys.maxsize


class _WithoutHeadroom(policy.GangPolicy):
    """Gangs outweigh all others, also VMs that wake up."""

    def __init__(self, config: control_config.ControlConfig) -> None:
        super().__init__(config)
        self._headrooms = dict.fromkeys((True, False), _NoHeadroom(1))


class _NoHeadroom(weights.WakeupHeadroom):
    def advance(self, weight: float) -> float:
        return sys.float_info.max


class _WithoutDemand(policy.GangPolicy):
    """Each VM is entitled to its part of the CPUs whether it sleeps or not."""

    def __init__(self, config: control_config.ControlConfig) -> None:
        super().__init__(config)
        self._stock_demand = _AllVcpus(self._demand_tracker)


class _AllVcpus(stock_demand.StockDemand):
    def advance(
        self, vms: Iterable[model.VmView | model.OtherVm], *args: Any
    ) -> dict[str, float]:
        return {vm.uuid: float(vm.vcpus) for vm in vms}


ABLATIONS: Mapping[str, type[policy.GangPolicy]] = {
    'pause-correction': _WithoutPauseCorrection,
    'share-correction': _WithoutShareCorrection,
    'harm-limit': _WithoutHarmLimit,
    'placement': _WithoutPlacement,
    'sides': _WithoutSides,
    'headroom': _WithoutHeadroom,
    'demand': _WithoutDemand,
}
"""Policies without one part, by the name of that part."""


def make_controller(part: str) -> controller.Controller:
    """Return a controller with default settings but without one part.

    :param part: a key of :data:`ABLATIONS`.
    """
    config = control_config.ControlConfig()
    return controller.Controller(
        config,
        ABLATIONS[part](config),
        balance.BalancePolicy(config),
        last_value.LastValuePredictor,
    )
