# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Metrics of the agent, its host and its VMs, served to Prometheus.

Role
    Turn the status document and the kernel's counters into metrics, when they
    are scraped.
Doors
    :class:`.endpoint.Metrics` listens; :class:`.host_metrics.HostCollector`
    and :class:`.vm_metrics.VmMetrics` give the values.
Invariants
    Nothing is read in a tick for the metrics; names and labels are kept from
    release to release.
Tests
    ``nova_vhpc/tests/unit/agent/metrics``, with a real Prometheus
    ``nova_vhpc/tests/functional/monitoring``.
"""
