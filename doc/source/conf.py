# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import os
import sys

sys.path.insert(0, os.path.abspath('../..'))
sys.path.insert(0, os.path.abspath('../../lab'))
sys.path.insert(0, os.path.abspath('_ext'))

# The agent, which agent_metrics loads, refuses eventlet, which oslo.service
# would choose when the sample's options are loaded.
import nova_vhpc.agent.rpc.native_threads  # noqa: F401

extensions = [
    'openstackdocstheme',
    'oslo_config.sphinxconfiggen',
    'oslo_config.sphinxext',
    'sphinx.ext.autodoc',
    'sphinx.ext.graphviz',
    'agent_metrics',
    'extra_specs',
    'package_guides',
    'program_options',
]

config_generator_config_file = (
    '../../etc/nova-vhpc/nova-vhpc-config-generator.conf'
)
sample_config_basename = '_static/nova-vhpc'

project = 'nova-vhpc'
copyright = '2026, nova-vhpc developers'
openstackdocs_repo_name = 'openstack/nova-vhpc'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
version = release = ''

html_theme = 'openstackdocs'
html_theme_options = {'sidebar_search': True}
pygments_style = 'native'
exclude_patterns = ['_build']
graphviz_output_format = 'svg'
add_module_names = False

man_pages = [
    (f'cli/nova-vhpc-{name}', f'nova-vhpc-{name}', about, project, section)
    for name, about, section in (
        ('agent', 'the agent of a compute host', 8),
        ('bench', 'measures nova-vhpc and its peers', 1),
        ('ctl', 'asks or tells agents over the message bus', 8),
        ('explain', 'says why members go where they go', 1),
        ('flavor', 'shows and writes the extra specs of virtual clusters', 1),
        ('hook', "libvirt's hook for servers that arrive", 8),
        ('status', 'checks whether this host is ready', 8),
        ('top', 'shows what agents do, by virtual cluster', 1),
        ('vendordata', 'tells members about their cluster', 8),
    )
]


def _list_hidden_pages(app, pagename, templatename, context, doctree):
    """Show pages of hidden toctrees in the sidebar's tree.

    The index pages list their pages with a sentence each, and so hide their
    toctrees, which Sphinx would leave out of the sidebar, too.
    """
    toctree = context.get('toctree')
    if toctree is not None:
        context['toctree'] = lambda **options: toctree(
            includehidden=True, **options
        )


def setup(app):
    """Connect the sidebar's tree."""
    app.connect('html-page-context', _list_hidden_pages)
