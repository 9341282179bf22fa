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

import os
import sys

sys.path.insert(0, os.path.abspath('../..'))
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
pygments_style = 'native'
exclude_patterns = ['_build']
graphviz_output_format = 'svg'
add_module_names = False
