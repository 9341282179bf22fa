# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The version of the installed package, from pbr's metadata."""

import argparse
import importlib.metadata


def version_string() -> str:
    """Return the version, such as ``1.0.0``; ``unknown`` if not installed."""
    try:
        return importlib.metadata.version('nova-vhpc')
    except importlib.metadata.PackageNotFoundError:
        return 'unknown'


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``, which all console scripts have."""
    parser.add_argument(
        '--version', action='version', version=version_string()
    )
