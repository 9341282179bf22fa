# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What the daemon shows of itself, in values that JSON takes."""

import os
from typing import Any

from nova_vhpc.agent.daemon import tick
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.lifecycle import manager
from nova_vhpc.agent.probes import sampler
from nova_vhpc.linux import cpus


def daemon(
    host_name: str,
    started: float,
    ticker: tick.TickLoop,
    result: tick.TickResult | None,
    followed: manager.Domains,
    probes: sampler.Sampler,
    records: store.Journal,
) -> dict[str, Any]:
    """The daemon as a whole; units are in the names.

    :param started: when it was, in seconds since 1970.
    :param result: the last tick; None before the first.
    """
    return {
        'host': host_name,
        'pid': os.getpid(),
        'started': started,
        'period_us': ticker.period_us,
        'ticks': ticker.ticks,
        'tick_us': None if result is None else result.took_us,
        'overruns': ticker.overruns,
        'tick_failures': ticker.failures,
        'libvirt_up': followed.connection.up,
        'reconnects': followed.connection.reconnects,
        'paused': followed.paused,
        'dry_run': followed.dry_run,
        'foreign_changes': followed.foreign,
        'late_calls': followed.late_calls,
        'cpus': cpus.format_cpu_set(cpu.id for cpu in ticker.cpus()),
        'probes': probes.names(),
        'effective_min_slice_us': ticker.limits.effective_min_slice_us,
        'journal_records': len(records.uuids()),
        'journal_bytes': records.size_bytes(),
        'refused': dict(followed.refused),
        'remarks': []
        if result is None
        else [
            f'{remark.uuid}: {remark.reason}' if remark.uuid else remark.reason
            for remark in result.plan.ignored
            if remark.uuid not in followed.guests
        ],
    }
