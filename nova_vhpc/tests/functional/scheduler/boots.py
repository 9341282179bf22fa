# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Schedule many servers at once: ``python -m ... NOVA_CONF BOOTS AT_ONCE``.

A boot is carried out up to the claim. This process does nova-conductor's part:
it asks nova-scheduler over the message bus for a host, in AT_ONCE threads. It
prints each server's host, or the error, as JSON.
"""

import concurrent.futures
import json
import sys
import threading

# Must come first, because it decides that eventlet is not used.
from nova.cmd import manage  # noqa: F401

# isort: split
from nova import config, context, exception, objects, rpc
from nova.conf import CONF
from nova.scheduler import rpcapi
from oslo_utils import uuidutils

from nova_vhpc.flavor import recipes
from nova_vhpc_lab.testbed.patience import PATIENCE_S

SPECS = recipes.recipe({'workload': 'parallel', 'network': 'separate'})


def spec(admin, uuid):
    """Return the request for one server with an uplink of its own."""
    flavor = objects.Flavor(
        id=1,
        flavorid='own',
        name='own',
        vcpus=1,
        memory_mb=64,
        root_gb=1,
        ephemeral_gb=0,
        swap=0,
        extra_specs=SPECS,
    )
    request_spec = objects.RequestSpec.from_components(
        admin,
        uuid,
        objects.ImageMeta.from_dict({}),
        flavor,
        None,
        objects.InstancePCIRequests(requests=[]),
        {},
        None,
        None,
        project_id='project',
        user_id='user',
    )
    request_spec.num_instances = 1
    return request_spec


def main():
    path, boots, at_once = sys.argv[1], *map(int, sys.argv[2:])
    config.parse_args(['nova-conductor', '--config-file', path])
    objects.register_all()
    rpc.init(CONF)
    scheduler = rpcapi.SchedulerAPI()
    together = threading.Barrier(at_once)

    def boot(number):
        uuid = uuidutils.generate_uuid()
        user = context.RequestContext('user', 'project', is_admin=True)
        if number < at_once:
            # The first requests start together, so that all find the same
            # uplinks free.
            together.wait(PATIENCE_S)
        try:
            ((selection, *_),) = scheduler.select_destinations(
                user, spec(user, uuid), [uuid], return_objects=True
            )
        except exception.NoValidHost as error:
            return uuid, {'error': str(error)}
        return uuid, {'host': selection.service_host}

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        results = dict(pool.map(boot, range(boots)))
    print(json.dumps(results), flush=True)
    rpc.cleanup()


if __name__ == '__main__':
    main()
