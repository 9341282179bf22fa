# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Errors of the test bed."""


class LabError(Exception):
    """The test bed cannot be set up or has failed; the message says why."""


class ImageError(Exception):
    """An image or a program cannot be built or run; the message says why."""
