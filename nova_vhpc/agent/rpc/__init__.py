# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""oslo.messaging as the agent uses it: few queues, threads and log lines.

Role
    Transports, servers that wait for their broker, and the control calls of
    ``nova-vhpc-ctl`` with their client.
Doors
    :func:`.transport.get_transport`, :class:`.control.ControlServer` and
    :class:`.control.ControlClient`; :func:`.server.fanout_server` hears all
    clusters of a host over one connection.
Invariants
    oslo.messaging is imported through :mod:`.native_threads` only. Classes
    that it does not document are used in :mod:`.exclusive_queue` only.
    Errors name the broker, and never a password.
Tests
    ``nova_vhpc/tests/unit/agent/rpc``; what a real RabbitMQ has of it in
    ``nova_vhpc/tests/functional/phase_exchange/test_queues.py``.
"""
