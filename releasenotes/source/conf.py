# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


project = 'nova-vhpc'
copyright = '2026, nova-vhpc developers'
openstackdocs_repo_name = 'openstack/nova-vhpc'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
version = release = ''

html_theme = 'openstackdocs'
pygments_style = 'native'
exclude_patterns = ['_build']
add_module_names = False
extensions = ['openstackdocstheme', 'reno.sphinxext']
