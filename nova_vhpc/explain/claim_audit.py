# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Find and mend claims on uplinks about which Nova and Placement disagree.

A claim is *lost* if a server runs without one that its flavor requests;
``nova-manage placement heal_allocations`` cannot make it, because it puts all
request groups on the compute node. A claim is an *orphan* if no server on that
host and no migration holds it; ``nova-manage placement audit`` looks at Nova's
own resource classes only.

Nova and Placement go on working meanwhile. Therefore:

* Allocations are read before Nova is asked who they belong to. Nova knows a
  server or a migration before it claims for it, so what Nova does not know
  then is gone.
* What is doubtful is named and left: a server in a cell that does not answer,
  that is being changed or migrated, a host whose nova-compute is not up.
* Right before a write all is read again. The write names the generation of
  the consumer; if another one came first, it is refused (HTTP 409), and all is
  read again.
* A server keeps whatever it holds on its host. Of an orphan, the claims on
  uplinks go only; the rest belongs to Nova.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from nova_vhpc.clients import openstack
from nova_vhpc.explain import claim_choice, claim_reader
from nova_vhpc.explain.claim_choice import Allocations
from nova_vhpc.explain.claim_reader import HOST, Held, wanted_by
from nova_vhpc.topology import model

WRITE_VERSION = '1.36'
"""As Nova's; a later one would want the type of the consumer."""

ATTEMPTS = 5
"""Times that a claim is looked at and written, if others write, too."""

_FINAL = frozenset({'confirmed', 'reverted', 'completed', 'cancelled'})
"""States of migrations that hold nothing any more. An evacuation that is
``done`` still does, until its source is up again."""

_FAILED = frozenset({'error', 'failed'})

_CONSUMERS = ('INSTANCE', 'MIGRATION', 'unknown')


class Finding(NamedTuple):
    """A consumer whose claims are not as they should be.

    :ivar consumer: UUID of a server, or of what was one or a migration.
    :ivar host: name of the host whose uplinks are concerned.
    :ivar problem: what is wrong, a sentence without full stop.
    :ivar remedy: what is to be done.
    :ivar allocations: allocations to write for it; None if it is not certain
        what these are.
    :ivar judged: whether something is wrong for certain.
    """

    consumer: str
    host: str
    problem: str
    remedy: str
    allocations: Allocations | None = None
    judged: bool = True


class ClaimAudit:
    """Compares the claims on uplinks with the servers of a cloud.

    :param connection: openstacksdk connection of an administrator.
    """

    def __init__(self, connection: Any) -> None:
        self._cloud = claim_reader.ClaimReader(connection)

    @property
    def unseen(self) -> int:
        """Number of servers of which Nova does not tell the flavor."""
        return self._cloud.unseen

    def findings(self) -> list[Finding]:
        """Return what is wrong now, by host.

        :raises CloudError: the cloud cannot be asked, or refuses.
        """
        with openstack.read():
            found = [
                self._look(consumer) for consumer in self._cloud.suspects()
            ]
        return sorted(
            (finding for finding in found if finding is not None),
            key=lambda finding: (finding.host, finding.consumer),
        )

    def mend(self, consumer: str) -> Finding | None:
        """Write what a consumer should hold, if that is certain.

        :param consumer: UUID of a consumer of :meth:`findings`.
        :returns: what is still wrong; None if nothing is.
        :raises CloudError: the cloud cannot be asked, or refuses.
        """
        with openstack.read():
            for _ in range(ATTEMPTS):
                held = self._cloud.held(consumer)
                finding = self._look(consumer, held)
                if finding is None or finding.allocations is None:
                    return finding
                refusal = self._write(consumer, held, finding.allocations)
        assert finding is not None
        return finding._replace(
            remedy=f'Placement refused it {ATTEMPTS} times, because others '
            f'write there, too; run this again later. It says: {refusal}'
        )

    def _look(self, consumer: str, held: Held | None = None) -> Finding | None:
        """Return what is wrong with the claims of one consumer, if anything.

        :param held: what it holds, read before; None to read it now.
        """
        held = held or self._cloud.held(consumer)
        server = self._cloud.server(consumer)
        if server is None:
            return self._orphan(consumer, held) if held.uplinks else None
        if server['status'] == 'UNKNOWN' or HOST not in server:
            return self._left(
                consumer,
                held,
                'Nova does not know its state: its cell does not answer',
            )
        missing = (wanted_by(server) or 0) - sum(held.uplinks.values())
        doubt = self._doubt(server)
        if not doubt and not server[HOST] and held.uplinks:
            return self._left(
                consumer, held, f'it is on no host ({server["status"]})'
            )
        if doubt and missing:
            return self._left(consumer, held, doubt)
        if doubt or not server[HOST]:
            # A server that is migrated holds its claims where it goes.
            return None
        root = self._cloud.root_of(server)
        if root is None or not self._cloud.nodes[root].up:
            return self._left(
                consumer,
                held,
                f'nova-compute of its host {server[HOST]} is not up',
            )
        foreign = [
            u for u in held.uplinks if self._cloud.uplinks[u][0] != root
        ]
        if foreign:
            return self._release(
                consumer, held, foreign, 'a server elsewhere holds'
            )
        return self._lost(server, held, root, missing) if missing > 0 else None

    def _doubt(self, server: Mapping[str, Any]) -> str:
        """Return why a server's claims may change by themselves, or ''."""
        task = server.get('OS-EXT-STS:task_state')
        if task is not None:
            return f'Nova is at work on it ({task})'
        for migration in self._cloud.migrations_of(server['id']):
            status = openstack.text(migration['status'])
            if status not in _FINAL | _FAILED:
                return f'its {migration["migration_type"]} is {status}'
        return ''

    def _left(self, consumer: str, held: Held, doubt: str) -> Finding:
        """Return the finding about a consumer that is not judged."""
        return Finding(
            consumer,
            self._cloud.hosts(held.uplinks) or '?',
            f'Its claims are not judged: {doubt}',
            'Nothing is written; run this again when that is over',
            judged=False,
        )

    def _orphan(self, consumer: str, held: Held) -> Finding | None:
        """Return the finding about a consumer that is no server of Nova.

        None if it is a migration that may need its claims.
        """
        status = self._cloud.migrations.get(consumer, 'completed')
        if status in _FAILED:
            return self._left(
                consumer, held, f'it is a migration that is {status}'
            )
        if status not in _FINAL:
            return None
        kind = held.body.get('consumer_type', 'unknown')
        if kind not in _CONSUMERS:
            return self._left(consumer, held, f'it is no server ({kind})')
        finding = self._release(
            consumer, held, held.uplinks, 'no server and no migration holds'
        )
        if finding.allocations:
            finding = finding._replace(
                remedy=f'{finding.remedy}; for its other allocations run '
                'nova-manage placement audit'
            )
        return finding

    def _release(
        self, consumer: str, held: Held, uplinks: Collection[str], why: str
    ) -> Finding:
        """Return the finding about claims to release.

        :param why: end of the sentence that names the claim.
        """
        for uuid in uplinks:
            root, _ = self._cloud.uplinks[uuid]
            node = self._cloud.nodes.get(root)
            if node is None or not node.up:
                # Nova releases it itself when the source of an evacuation is
                # back; and it names no migrations of a cell that is down.
                return self._left(
                    consumer,
                    held,
                    'nova-compute of host '
                    f'{self._cloud.hosts([uuid])} is not up',
                )
        return Finding(
            consumer,
            self._cloud.hosts(uplinks),
            f'A claim on {self._cloud.names(uplinks)} that {why}',
            'Release it',
            held.without(uplinks),
        )

    def _lost(
        self,
        server: Mapping[str, Any],
        held: Held,
        root: str,
        missing: int,
    ) -> Finding:
        """Return the finding about a server that lacks claims."""
        problem = (
            f'It lacks {missing} claim(s) on uplinks'
            if held.allocations
            else 'It has no allocations: what it uses is offered to others'
        )
        finding = Finding(
            server['id'], self._cloud.nodes[root].host, problem, ''
        )
        try:
            chosen = claim_choice.choose(
                self._cloud.connection,
                server,
                claim_choice.Place(
                    root, self._cloud.topology.get(root), self._cloud.encap_ips
                ),
                missing,
                [self._cloud.uplinks[uuid][1].path for uuid in held.uplinks]
                if held.allocations
                else None,
            )
        except claim_choice.UndecidedError as reason:
            return finding._replace(
                remedy=f'{reason}. A cold migration, which stops the server '
                'for a while, claims anew'
            )
        allocations = {**held.allocations}
        for uuid, allocation in chosen.items():
            before = allocations.get(uuid, {}).get('resources', {})
            resources: Counter[str] = Counter(before)
            resources.update(allocation['resources'])
            allocations[uuid] = {'resources': dict(resources)}
        return finding._replace(
            remedy=f'Claim {self._cloud.names(model.uplinks_in(chosen))}'
            + ('' if held.allocations else ', CPUs, RAM and disk'),
            allocations=allocations,
        )

    def _write(
        self, consumer: str, held: Held, allocations: Allocations
    ) -> str:
        """Replace the allocations of a consumer, unless it has changed.

        :returns: why Placement refused it, empty if it did not.
        :raises CloudError: Placement refuses for another reason.
        """
        owner = held.body
        if not held.allocations:
            server = self._cloud.server(consumer)
            if server is None:
                return 'the server is gone'
            owner = {**server, 'project_id': server['tenant_id']}
        answer = self._cloud.connection.placement.put(
            f'/allocations/{consumer}',
            json={
                'allocations': allocations,
                'project_id': owner['project_id'],
                'user_id': owner['user_id'],
                'consumer_generation': held.body.get('consumer_generation'),
            },
            microversion=WRITE_VERSION,
        )
        if answer.status_code == 204:
            return ''
        text = ' '.join(answer.text.split())[:300]
        if answer.status_code == 409:
            return text
        raise openstack.CloudError(
            f'PUT /allocations/{consumer} was answered '
            f'{answer.status_code}: {text}'
        )
