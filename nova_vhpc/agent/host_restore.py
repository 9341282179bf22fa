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

"""``nova-vhpc-agent --restore``: the whole host put back, without a daemon."""

import logging
import time
from typing import Any

import libvirt

from nova_vhpc.agent import (
    binding,
    connection,
    journal,
    lock,
    processes,
    restore,
)

LOG = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
"""How long it waits for libvirt."""


def restore_host(conf: Any) -> int:
    """``nova-vhpc-agent --restore``: put all back, then end.

    :returns: 0 if everything is as it was, 1 if not.
    :raises AgentError: the agent itself runs.
    """
    options = conf.vhpc_agent
    guard = lock.Lock(options.run_path)
    guard.acquire()
    records = journal.Journal(options.state_path)
    connection.start_event_loop()
    conn = _wait_for(options.libvirt_uri)
    if conn is None:
        LOG.error(
            'libvirt at %s does not answer; nothing is restored, %d VMs are '
            'in the journal',
            options.libvirt_uri,
            len(records.uuids()),
        )
        return 1
    restorer = restore.Restorer(records, processes.make_processes(conf))
    try:
        summary = restorer.clean_all(conn)
        # Also when the option was turned off since.
        summary.failed.update(binding.make_plugger(conf).undo_all(conn))
    except libvirt.libvirtError as error:
        LOG.error('libvirt at %s: %s', options.libvirt_uri, error)
        return 1
    finally:
        guard.release()
    (LOG.error if summary.failed else LOG.info)('Restore: %s', summary.text())
    return 1 if summary.failed else 0


def _wait_for(uri: str) -> Any:
    end = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            conn = libvirt.open(uri)
            conn.setKeepAlive(
                connection.KEEPALIVE_INTERVAL_S, connection.KEEPALIVE_COUNT
            )
            return conn
        except libvirt.libvirtError as error:
            if time.monotonic() > end:
                LOG.error('%s', error)
                return None
            time.sleep(0.5)
