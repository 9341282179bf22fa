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

"""ovsdbapp and the library that it is built on, without eventlet.

Import them through this module only: ovs loads eventlet wherever it is
installed, which this project never does.
"""

from nova_vhpc.agent import no_eventlet  # noqa: F401

# isort: split
from ovs import jsonrpc, poller, stream
from ovs.db import idl
from ovsdbapp import exceptions
from ovsdbapp.backend import ovs_idl
from ovsdbapp.backend.ovs_idl import command, connection, transaction

__all__ = [
    'command',
    'connection',
    'exceptions',
    'idl',
    'jsonrpc',
    'ovs_idl',
    'poller',
    'stream',
    'transaction',
]
