# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The interface of actuators, and their loading."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from nova_vhpc.agent import errors, plugins
from nova_vhpc.agent.guests import guest
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

ACTUATOR_NAMESPACE = 'nova_vhpc.actuators'


class Actuator(Protocol):
    """Writes the controller's decisions to a guest.

    Called in the threads of the :class:`DomainExecutor`.
    """

    def __init__(self, conf: Any) -> None: ...

    def check(self) -> str | None:
        """Return why the actuator cannot work on this host; None if it can."""

    def limits(self) -> model.ActuatorLimits:
        """Return the values that the actuator accepts and can bring about."""

    def write(
        self, guest: guest.Guest, tune: model.CpuTune, slice_us: int | None
    ) -> None:
        """Write the fields of ``tune`` that are not None.

        Note each value in the guest as soon as it is in force.

        :param slice_us: time slice that ``tune`` shall bring about, in
            microseconds; None if none was decided.
        :raises libvirt.libvirtError, OSError: a value was refused.
        """

    def undo(self, guest: guest.Guest) -> None:
        """Restore what the journal does not record."""


def common_limits(actuators: Sequence[Any]) -> model.ActuatorLimits:
    """Return the limits of the first actuator, and what all of them can do.

    :param actuators: at least one, in the order of the option.
    """
    first: model.ActuatorLimits
    first, *others = (actuator.limits() for actuator in actuators)
    # What a plugin returns is checked later, in each tick.
    if any(getattr(one, 'thread_slices', False) for one in others):
        return dataclasses.replace(first, thread_slices=True)
    return first


def load_actuators(conf: Any) -> list[Any]:
    """Load the actuators that ``[vhpc_agent]actuators`` names.

    An actuator that cannot work on this host is left out with a warning.

    :raises ConfigError: an actuator is unknown or fails to load, or none of
        them can work on this host.
    """
    actuators = []
    for name in conf.vhpc_agent.actuators:
        value = f"[vhpc_agent]actuators = '{name}'"
        actuator_class = plugins.load(
            ACTUATOR_NAMESPACE, name, value, 'no such actuator'
        )
        try:
            actuator = actuator_class(conf)
            reason = actuator.check()
            actuator.limits()
        except errors.AgentError:
            raise
        except Exception as error:
            raise errors.ConfigError(f'{value}: failed: {error!r}') from error
        if reason is None:
            actuators.append(actuator)
        else:
            LOG.warning('Actuator %s is not used: %s', name, reason)
    if not actuators:
        raise errors.ConfigError(
            "[vhpc_agent]actuators = '': nothing could be written; "
            f'allowed: {plugins.allowed(ACTUATOR_NAMESPACE)}'
        )
    return actuators
