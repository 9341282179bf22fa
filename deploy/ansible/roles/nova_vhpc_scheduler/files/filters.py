# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Print Nova's lists of filters and weighers as JSON, without nova-vhpc's.

Run by nova's Python with the paths of nova.conf and of nova-vhpc's own file
for nova-scheduler, which need not exist.
"""

import json
import pathlib
import sys

import nova.conf
from oslo_config import cfg

NAMES = ('available_filters', 'enabled_filters', 'weight_classes')

nova_conf, ours = map(pathlib.Path, sys.argv[1:])
# nova-scheduler reads them in this order, the last word counts.
shared = sorted(nova_conf.with_name('nova.conf.d').glob('*.conf'))
own = sorted(ours.parent.glob('*.conf'))
for file in own:
    if file.name <= ours.name:
        continue
    sections = {}
    cfg.ConfigParser(str(file), sections).parse()
    told = sorted({*NAMES} & {*sections.get('filter_scheduler', ())})
    if told:
        sys.exit(
            f'{file} sets [filter_scheduler] {", ".join(told)} after '
            f'{ours.name}, so that nova-vhpc would not be used: give it a '
            'name that sorts before that one'
        )
files = [nova_conf, *shared, *(file for file in own if file != ours)]
nova.conf.CONF(
    [],
    project='nova',
    default_config_files=[str(file) for file in files],
    default_config_dirs=[],
)
options = nova.conf.CONF.filter_scheduler
lists = {
    name: [
        value
        for value in options[name]
        if not value.startswith('nova_vhpc.')
        and value != 'VirtualClusterFilter'
    ]
    for name in NAMES
}
print(json.dumps(lists))
