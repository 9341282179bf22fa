# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Whenever an agent is killed, the next one restores the encap IP."""

import multiprocessing
import os
import pathlib
import random
import time
from multiprocessing import forkserver

from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import encap_ip as encap_ip_binder
from nova_vhpc.agent.uplinks.binders import encap_ip_writer, guest_ports
from nova_vhpc.tests.functional.agent import encap_ip
from nova_vhpc.topology import links
from nova_vhpc_lab.ovn import domain, lab
from nova_vhpc_lab.testbed.patience import PATIENCE_S

KILLS = int(os.environ.get('VHPC_ENCAP_IP_KILLS', '20'))
SEED = 2026
LONGEST_S = 0.3
"""Longest time between the first write and the kill."""

_context = multiprocessing.get_context('forkserver')
_context.set_forkserver_preload([__name__])


def _bind_for_ever(
    remote: str, state: str, uuid: str, mac: str, encap_ips: list[str]
) -> None:
    """Bind a guest to one uplink after the other, and restore it."""
    ovsdb = connection.Ovsdb(remote)
    ovsdb.start()
    assert ovsdb.wait(PATIENCE_S)
    binder = encap_ip_binder.EncapIpBinder(
        ovsdb,
        encap_ip_writer.EncapIpJournal(state),
        'h1',
        guest_ports.UplinkLinks(links.Links(pathlib.Path('/sys'))),
        lambda: False,
    )
    target = domain.Domain(uuid, (mac,))
    while True:
        for address in encap_ips:
            uplink = claims.ClaimedUplink('bridge', 'nic', address)
            binder.bind(claims.Claimant(target, (uplink,)))
        binder.restore(target)


class EncapIpKillsTest(encap_ip.EncapIpTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        # Started here, so that the fork server does not run in the temporary
        # directory of the first test, which that test removes.
        forkserver.ensure_running()
        super().setUpClass()

    def test_next_agent_restores_after_a_kill_at_any_moment(self) -> None:
        host = self.hosts['h1']
        guest = self.guest('h1')
        before = host.external_ids(guest.tap)
        agent = self.agent('h1', running=False)
        state = str(agent.journal.path.parent)
        moments = random.Random(SEED)
        left = 0
        for _ in range(KILLS):
            process = _context.Process(
                target=_bind_for_ever,
                args=(
                    host.socket,
                    state,
                    guest.uuid,
                    guest.mac,
                    host.encap_ips[1:],
                ),
            )
            process.start()
            lab.wait_for(agent.encap_ips.uuids, 'the first record')
            time.sleep(moments.uniform(0, LONGEST_S))
            process.kill()
            process.join()
            left += 'encap-ip' in host.external_ids(guest.tap)
            following = self.agent('h1', running=False)
            self.assertEqual({}, following.encap_ips.restore_all(self.fail))
            following.ovsdb.stop()
            self.assertEqual(before, host.external_ids(guest.tap))
            self.assertEqual(frozenset(), agent.encap_ips.uuids())
        # Otherwise nothing was tested.
        self.assertGreater(left, KILLS // 4)
