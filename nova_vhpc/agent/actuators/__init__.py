# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write cputune, weights and affinities; play gang windows.

Role
    Bring what the controller planned into libvirt and the kernel.
Doors
    :class:`.libvirt_cputune.LibvirtCputuneActuator` writes a cputune;
    :class:`.weights.Weights` a weight, by file or libvirt; :mod:`.affinity`
    places vCPU threads; :class:`.window_player.WindowPlayer` plays a schedule
    of windows through :class:`.share_writer.ShareWriter`.
Invariants
    Only what is not in force is written. One write per guest at a time, and a
    guest whose write hangs delays no other. When windows end, each guest has
    its last weight and may run wherever its pins allow.
Tests
    ``unit/agent/actuators``; ``functional/agent/test_windows``.
"""
