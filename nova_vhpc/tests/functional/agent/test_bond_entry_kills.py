# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Whenever an agent is killed, nothing of it is left but the entry's member.

And the next agent binds the guest again.
"""

import multiprocessing
import os
import pathlib
import random
import time
from multiprocessing import forkserver

from nova_vhpc.agent.ovsdb import connection, vswitchd
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import bond_entry as bond_entry_binder
from nova_vhpc.tests.functional.agent import bond_entry
from nova_vhpc_lab.ovn import domain, lab
from nova_vhpc_lab.testbed.patience import PATIENCE_S

KILLS = int(os.environ.get('VHPC_BOND_ENTRY_KILLS', '20'))
SEED = 2026
LONGEST_S = 0.3
"""Longest time between the first entry and the kill."""

_context = multiprocessing.get_context('forkserver')
_context.set_forkserver_preload([__name__])


def _bind_for_ever(
    remote: str,
    run_dir: str,
    uuid: str,
    mac: str,
    uplinks: list[claims.ClaimedUplink],
    began: str,
) -> None:
    """Bind a guest to one member after the other, and release it."""
    ovsdb = connection.Ovsdb(remote)
    ovsdb.start()
    assert ovsdb.wait(PATIENCE_S)
    binder = bond_entry_binder.BondEntryBinder(
        ovsdb, vswitchd.Vswitchd(pathlib.Path(run_dir)), 'h1'
    )
    binder.start(lambda: None)
    target = domain.Domain(uuid, (mac,))
    while True:
        for uplink in uplinks:
            assert binder.bind(claims.Claimant(target, (uplink,))) == 1
            pathlib.Path(began).touch()
        binder.restore(target)


class BondEntryKillsTest(bond_entry.BondEntryTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        # Started here, so that the fork server does not run in the temporary
        # directory of the first test, which that test removes.
        forkserver.ensure_running()
        super().setUpClass()

    def test_nothing_is_left_after_a_kill_at_any_moment(self) -> None:
        host = self.hosts['h1']
        guest = self.guest('h1')
        # Known without a frame, so that there is nothing to wait for.
        host.vsctl(
            *('set', 'Port', guest.tap, 'other_config:network_type=vlan'),
            f'other_config:physical_network={bond_entry.PHYSNET}',
            f'other_config:segmentation_id={bond_entry.VLAN}',
        )
        agent = self.bond_agent('h1', running=False)
        before = self.contents('h1'), self.connections()
        moments = random.Random(SEED)
        for number in range(KILLS):
            began = pathlib.Path(self.state, f'began-{number}')
            process = _context.Process(
                target=_bind_for_ever,
                args=(
                    host.socket,
                    str(host.place.path),
                    guest.uuid,
                    guest.mac,
                    [agent.uplink(0), agent.uplink(1)],
                    str(began),
                ),
            )
            process.start()
            lab.wait_for(began.exists, 'the first entry')
            time.sleep(moments.uniform(0, LONGEST_S))
            self.assertTrue(process.is_alive())
            process.kill()
            process.join()
            self.assertEqual(before[0], self.contents('h1'))
            following = self.bond_agent('h1', running=False)
            self.assertEqual(frozenset(), following.entries.uuids())
            self.assertEqual(
                1,
                following.entries.bind(
                    claims.Claimant(
                        guest.domain, (following.uplink(number % 2),)
                    )
                ),
            )
            following.ovsdb.stop()
        lab.wait_for(
            lambda: self.connections() == before[1],
            'the end of all connections',
        )

    def connections(self) -> int:
        """Return how many files ovs-vswitchd has open."""
        path = self.hosts['h1'].place.path / 'ovs-vswitchd.pid'
        return len(os.listdir(f'/proc/{int(path.read_text())}/fd'))
