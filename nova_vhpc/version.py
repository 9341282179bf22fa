# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The version of the installed package, as pbr built it."""

import argparse
import importlib.metadata


def version_string() -> str:
    """For instance ``1.0.0``; ``unknown`` from a checkout not installed."""
    try:
        return importlib.metadata.version('nova-vhpc')
    except importlib.metadata.PackageNotFoundError:
        return 'unknown'


def add_argument(parser: argparse.ArgumentParser) -> None:
    """``--version``, which all console scripts have."""
    parser.add_argument(
        '--version', action='version', version=version_string()
    )
