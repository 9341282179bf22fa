# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The daemon: starts, runs and stops all parts of the agent.

Role
    Read the options, build each part with those that it needs, tick, serve
    the status, and restore everything at the end.
Doors
    :class:`.service.Service` is the agent; :func:`.options.load` and
    :func:`.options.check` read its options; :func:`.restore_host.restore_host`
    is ``--restore``; :class:`.tick.TickLoop` senses, decides and acts once per
    control period; :mod:`.status` defines the status document and
    :mod:`.status_socket` serves it; :mod:`.systemd` has notifications and
    signals; :mod:`.controller_factory` makes the pure controller.
Invariants
    Signals are handled from the first moment of the process on, and a stop
    takes five seconds. Whatever hangs or fails in one part, the others are
    stopped and all guests restored. Only the lock's holder writes.
Tests
    ``unit/agent/daemon``; ``functional/agent/test_service``, ``test_kills``,
    ``test_restarts`` and ``test_restore`` with real libvirt and QEMU.
"""
