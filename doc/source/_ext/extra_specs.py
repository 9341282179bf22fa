# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
