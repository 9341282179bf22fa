# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A host without CPUs, on which only time passes."""

from nova_vhpc_lab.sim.agenda import Agenda


class Clock:
    """Simulated time.

    :ivar steps: times to which the host was advanced.
    """

    def __init__(self):
        self.now_us = 0
        self.steps = []

    def advance(self, until_us):
        self.now_us = until_us
        self.steps.append(until_us)


def agenda():
    return Agenda(Clock())
