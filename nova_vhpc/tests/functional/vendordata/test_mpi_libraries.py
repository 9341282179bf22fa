# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Messages of MPI libraries take the NICs of the network configuration.

HPCVirt'09 section 5, with the libraries of the distribution: MPICH (with UCX
in Debian) and Open MPI start a job of four ranks in four network namespaces,
with the hostfile, flags and scripts of vendordata. Counters of the NICs show
what each network carried.
"""

import ipaddress
import json
import pathlib
import re
from typing import Any

from nova_vhpc.tests import base
from nova_vhpc.tests.functional.vendordata import guests, mpi_program
from nova_vhpc.vendordata import answer, model

SIZE = 2_000_000
"""Bytes that each rank sends in a round."""

SENT = SIZE * mpi_program.ROUNDS * len(guests.HOSTS)
NOISE = SENT // 20
"""More than launchers and acknowledgements need; less than one rank sends."""

NETWORKS = {
    'separate': ('management', 'own'),
    'multiple-shared': ('management', 'shared', 'shared2'),
    'shared-separate': ('shared', 'own'),
}
"""NICs that Nova knows of, by network configuration."""


class LibraryCase(base.TestCase):
    """Common to the libraries; ``job`` starts one.

    :cvar versions: IP versions of which guests have addresses.
    """

    versions: tuple[int, ...] = (4,)

    def setUp(self) -> None:
        super().setUp()
        self.guests = self.useFixture(guests.Guests(self.versions))

    def job(self, network: str, peers: str, data: Any) -> str:
        """Run the program on all members; return what it prints.

        :param peers: peers that the ranks send to.
        :param data: vendordata of the member that starts the job.
        """
        raise NotImplementedError

    def vendordata(self, network: str, number: int) -> Any:
        """Return the vendordata of a guest, as JSON has it."""
        members = model.ranked(
            model.Member(
                f'10000000-0000-4000-8000-{guest:012}',
                f'guest-{guest}',
                1,
                host,
                nics=tuple(
                    model.Nic(
                        f'02:00:00:00:{nic:02}:{guest:02}',
                        tuple(
                            ipaddress.ip_address(
                                self.guests.address(guest, name, version)
                            )
                            for version in self.versions
                        ),
                    )
                    for nic, name in enumerate(NETWORKS[network])
                ),
                network=network,
            )
            for guest, host in guests.HOSTS.items()
        )
        cluster = model.Cluster('1', 'weather', members)
        return json.loads(answer.Answers(cluster).of(members[number - 1].uuid))

    def exchange(self, network: str, peers: str) -> dict[str, int]:
        """Run a job; return the bytes that each network carried."""
        data = self.vendordata(network, 1)
        for name, text in (
            ('hosts.openmpi', data['hostfile']['openmpi']),
            ('hosts.mpich', data['hostfile']['mpich']),
            ('vhpc-run', data['mpi']['wrapper']),
            ('program', pathlib.Path(mpi_program.__file__).read_text()),
        ):
            self.guests.install(name, text)
        self.guests.add_names(data['hosts'])
        for number in guests.HOSTS:
            routes = self.guests.install(
                'vhpc-routes',
                self.vendordata(network, number)['routes_script'],
            )
            self.guests.run(number, f'sh -e {routes}')
        before = self.guests.sent_bytes()
        printed = self.job(network, peers, data)
        self.assertIn('4 ranks', printed)
        after = self.guests.sent_bytes()
        return {name: after[name] - before[name] for name in after}

    def assert_carried(
        self, carried: dict[str, int], networks: tuple[str, ...]
    ) -> None:
        """Check that these networks carried all messages, each its part."""
        for name in guests.NICS:
            if name in networks:
                self.assertGreater(
                    carried[name], SENT / len(networks) / 2, carried
                )
            else:
                self.assertLess(carried[name], NOISE, carried)

    def program(self, library: str, peers: str) -> str:
        path = self.guests.directory / 'program'
        return f'python3 {path} {library} {peers} {SIZE}'


class PathsMixin:
    """What holds for every library."""

    def test_separate_uses_the_own_uplink_for_all_peers(self) -> None:
        for peers in ('local', 'remote'):
            self.assert_carried(self.exchange('separate', peers), ('own',))

    def test_multiple_shared_uses_both_shared_bridges(self) -> None:
        self.assert_carried(
            self.exchange('multiple-shared', 'remote'), ('shared', 'shared2')
        )

    def test_shared_separate_uses_the_shared_bridge_on_one_host(self) -> None:
        self.assert_carried(
            self.exchange('shared-separate', 'local'), ('shared',)
        )
        self.assert_carried(
            self.exchange('shared-separate', 'remote'), ('own',)
        )


class MpichTest(PathsMixin, LibraryCase):
    def job(self, network: str, peers: str, data: Any) -> str:
        directory = self.guests.directory
        return self.guests.run(
            1,
            'mpiexec.mpich -launcher ssh'
            f' -launcher-exec {self.guests.enter}'
            f' -f {directory}/hosts.mpich {" ".join(data["mpi"]["mpich"])}'
            f' {directory}/vhpc-run {self.program("libmpich.so.12", peers)}',
        )


class OpenMpiTest(PathsMixin, LibraryCase):
    def job(self, network: str, peers: str, data: Any) -> str:
        version = self.guests.run(1, 'mpirun.openmpi --version')
        match = re.search(r'(\d+)\.', version)
        assert match is not None, version
        if int(match[1]) < 5:
            key, launcher = 'openmpi', '--mca plm_rsh_agent'
        else:
            key, launcher = 'openmpi5', '--prtemca plm_ssh_agent'
        return self.guests.run(
            1,
            'OMPI_MCA_mpi_yield_when_idle=1'
            f' mpirun.openmpi --allow-run-as-root {launcher}'
            f' {self.guests.enter}'
            f' --hostfile {self.guests.directory}/hosts.openmpi'
            f' {" ".join(data["mpi"][key])}'
            f' {self.guests.directory}/vhpc-run'
            f' {self.program("libmpi.so.40", peers)}',
        )


class DualStackMpichTest(MpichTest):
    versions = 4, 6


class DualStackOpenMpiTest(OpenMpiTest):
    versions = 4, 6


class Ipv6OpenMpiTest(OpenMpiTest):
    """MPICH's launcher speaks IPv4 only."""

    versions = (6,)

    # Open MPI 4.1.4 hangs with two NICs and IPv6 alone, as the page says.
    test_multiple_shared_uses_both_shared_bridges = None  # type: ignore
