# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Checks of the agent as a unit of systemd, in a machine of its own.

Role
    What only a machine with systemd, AppArmor and boots of its own shows:
    installing by Ansible, hardening, kills, upgrades, a reboot.
Doors
    ``tools/host-vm.sh`` starts the machine, in which ``python -m
    nova_vhpc_lab.hostvm`` runs :data:`.first_boot.CHECKS` and
    :data:`.second_boot.CHECKS`.
Invariants
    Nothing of the calling machine is changed but its cache.
Tests
    It is one: nightly only.
"""
