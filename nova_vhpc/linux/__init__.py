# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What Linux tells about CPUs, control groups and QEMU processes.

Role
    Read ``/proc``, ``/sys`` and control groups for everybody above.
Doors
    :mod:`.cpus` and :mod:`.cgroup`; :class:`.qemu_process.Processes`
    finds the threads of a domain; :mod:`.private_path` says who else can
    change a file.
Invariants
    Nothing is written. Both versions of control groups, hybrids and
    containers are understood. A process is a domain's by its control groups
    only, never by its name.
Tests
    ``nova_vhpc/tests/unit/linux``; real domains
    ``nova_vhpc/tests/functional/agent``.
"""
