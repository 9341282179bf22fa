# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``.. package-guides::`` shows the guides of packages, their docstrings."""

import importlib
import pkgutil

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.util.nodes import nested_parse_with_titles


class PackageGuides(Directive):
    """A section for each package below those named that has a guide."""

    has_content = True

    def run(self):
        """Build the nodes."""
        lines = []
        for name in map(str.strip, self.content):
            for package in _packages(name):
                lines += [package, '-' * len(package), '']
                lines += [f'.. automodule:: {package}', '   :no-members:', '']
        node = nodes.container()
        source = self.state.document.current_source
        node.document = self.state.document
        nested_parse_with_titles(
            self.state, StringList(lines, source=source), node
        )
        return node.children


def _packages(name):
    """Yield a package and those below it, without those that have no guide."""
    package = importlib.import_module(name)
    if (package.__doc__ or '').strip():
        yield name
    for found in pkgutil.iter_modules(package.__path__, f'{name}.'):
        if found.ispkg:
            yield from _packages(found.name)


def setup(app):
    """Register the directive."""
    app.add_directive('package-guides', PackageGuides)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
