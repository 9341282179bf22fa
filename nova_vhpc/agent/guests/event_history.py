# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What libvirt's events say about one run of a guest.

Events come late, also those of the agent's own writes, and a write of the
agent may come just after an external one: then only the event reports the
external value.
"""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model


@dataclasses.dataclass(slots=True, eq=False)
class EventHistory:
    """Distinguishes events of the agent's writes from external changes.

    Values are named as by :func:`.cputune.names`.

    :ivar written_shares: every ``cpu_shares`` that the agent wrote in this
        run.
    :ivar external_shares: ``cpu_shares`` of an external change that an event
        reported and no check has seen yet; until then no gang window writes.
    :ivar written: every period, quota and pin that the agent wrote in this
        run, with its name.
    :ivar last: the value that the agent wrote last, also of ``cpu_shares``,
        by name.
    :ivar external: external periods, quotas and pins that an event reported
        and no check has seen yet, by name.
    """

    written_shares: set[int] = dataclasses.field(default_factory=set)
    external_shares: int | None = None
    written: set[tuple[str, written_values.Value]] = dataclasses.field(
        default_factory=set
    )
    last: dict[str, written_values.Value] = dataclasses.field(
        default_factory=dict
    )
    external: Mapping[str, written_values.Value] = dataclasses.field(
        default_factory=dict
    )

    def note(self, values: Mapping[str, written_values.Value]) -> None:
        """Record values that are about to be written, by name."""
        self.last |= values
        self.written |= values.items()

    def note_bandwidth(self, tune: model.CpuTune) -> None:
        """Record period and quota that are about to be written."""
        self.note(
            written_values.of_tune(
                model.CpuTune(tune.period_us, tune.quota_us)
            )
        )

    def wrote(self, name: str, value: written_values.Value) -> bool:
        """Return whether the agent wrote a period, quota or pin."""
        return (name, value) in self.written

    def overwritten(
        self, now: cputune.Cputune
    ) -> Mapping[str, written_values.Value]:
        """Return external values that a write of the agent replaced, by name.

        Only the value that the agent wrote last counts as its write: an
        earlier one that is in force again was set externally.

        :param now: cputune in force.
        """
        in_force = written_values.values(now)
        return {
            name: value
            for name, value in self.external.items()
            if name in in_force and in_force[name] == self.last.get(name)
        }
