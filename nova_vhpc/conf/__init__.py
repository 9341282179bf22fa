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

"""Options of nova-vhpc: one module per group, as OpenStack keeps them.

Each module has ``register_opts(conf)`` and ``list_opts()``. Options are
registered on a ``ConfigOpts`` that the caller passes: nova-scheduler its
own global one, the agent a private one.
"""
