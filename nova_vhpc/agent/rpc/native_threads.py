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


"""oslo.messaging with the threading backend.

Import oslo_messaging through this package only: otherwise it makes
oslo.service choose eventlet, which the agent refuses to load, and fail.
"""

from oslo_service import backend

backend.init_backend(backend.BackendType.THREADING)

import oslo_messaging as messaging  # noqa: E402

__all__ = ['messaging']
