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

"""``.. agent-metrics::`` writes the table of metrics from the code."""

import collections

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from nova_vhpc.agent.daemon import metrics


def _status():
    return {'agent': collections.defaultdict(int), 'vms': []}


class AgentMetrics(Directive):
    """A definition list of every metric that the agent serves."""

    def run(self):
        """Build the nodes by asking an agent that has no VMs."""
        lines = []
        for family in metrics.Metrics(_status).registry.collect():
            name = family.name + ('_total' if family.type == 'counter' else '')
            labels = ' Labels: ``uuid``, ``name``.' if '_vm_' in name else ''
            labels = ' Label: ``part``.' if '_part_' in name else labels
            lines += [
                f'``{name}`` ({family.type})',
                f'  {family.documentation}{labels}',
                '',
            ]
        node = nodes.container()
        self.state.nested_parse(
            StringList(lines, source='nova_vhpc/agent/daemon/metrics.py'),
            0,
            node,
        )
        return node.children


def setup(app):
    """Register the directive."""
    app.add_directive('agent-metrics', AgentMetrics)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
