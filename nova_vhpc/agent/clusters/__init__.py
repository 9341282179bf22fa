# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Virtual clusters: who is a member, and what their hosts tell each other.

Role
    Know the cluster of each server here, by Nova or a groups file; exchange
    phases and slots with the other hosts of these clusters.
Doors
    :class:`.groups.Groups` knows clusters;
    :class:`.phase_exchange.PhaseExchange` takes what a tick decided and has
    what other hosts say, with :class:`.slot_exchange.SlotExchange` for slots.
    Both have a part of the status document.
Invariants
    A tick only touches memory: threads talk to Nova and the broker. Names are
    checked where they are read (:mod:`.names`), messages where they arrive
    (:mod:`.messages`). Without Nova the last answer holds; without a broker
    each host decides by itself.
Tests
    ``nova_vhpc/tests/unit/agent/clusters`` over an in-memory bus; with a real
    RabbitMQ ``nova_vhpc/tests/functional/phase_exchange``, with a real Nova
    ``nova_vhpc/tests/functional/clusters``.
"""
