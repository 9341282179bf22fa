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

"""``.. extra-specs::`` writes the table of vhpc:* keys from the code."""

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList

from nova_vhpc.flavor import extra_specs


class ExtraSpecs(Directive):
    """A definition list of every key, in the order of the code's table."""

    option_spec = {'key': directives.unchanged}

    def run(self):
        """Build the nodes."""
        defaults = extra_specs.ExtraSpecs()
        lines = []
        for key in extra_specs.KEYS:
            default = getattr(defaults, key.name)
            lines += [
                f'``{key.full_name}``',
                f'  {key.description}',
                '',
                f'  Takes {key.allowed}. '
                + (
                    f'Default: ``{default}``.'
                    if default is not None
                    else 'No default.'
                ),
                '',
            ]
        node = nodes.container()
        self.state.nested_parse(
            StringList(lines, source='nova_vhpc/flavor/extra_specs.py'),
            0,
            node,
        )
        return node.children


def setup(app):
    """Register the directive."""
    app.add_directive('extra-specs', ExtraSpecs)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
