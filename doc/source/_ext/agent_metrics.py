# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``.. agent-metrics::`` writes the table of metrics from the code.

With the argument ``vms`` those of VMs, else those of the agent and its host.
"""

import collections

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from nova_vhpc.agent.metrics import endpoint, host_metrics, vm_metrics


def _host_families():
    """Yield name, type, help and labels, as of an agent that knows nothing."""
    status = {'agent': collections.defaultdict(int)}
    collector = host_metrics.HostCollector(lambda: status)
    for family in endpoint.Metrics(collector).registry.collect():
        suffix = '_total' if family.type == 'counter' else ''
        labels = getattr(family, '_labelnames', ())
        yield (
            family.name + suffix,
            family.type,
            family.documentation,
            labels,
        )


class AgentMetrics(Directive):
    """A definition list of metrics that the agent serves."""

    optional_arguments = 1

    def run(self):
        """Build the nodes by asking the code."""
        of_vms = self.arguments == ['vms']
        families = (
            ((*family, ()) for family in vm_metrics.FAMILIES)
            if of_vms
            else _host_families()
        )
        lines = []
        for name, kind, text, labels in families:
            names = ', '.join(f'``{label}``' for label in labels)
            lines += [
                f'``{name}`` ({kind})',
                f'  {text}' + (f' Labels: {names}.' if names else ''),
                '',
            ]
        node = nodes.container()
        self.state.nested_parse(
            StringList(lines, source='nova_vhpc/agent/metrics/endpoint.py'),
            0,
            node,
        )
        return node.children


def setup(app):
    """Register the directive."""
    app.add_directive('agent-metrics', AgentMetrics)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
