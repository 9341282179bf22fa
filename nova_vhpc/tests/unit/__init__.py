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

"""Unit tests.

Hypothesis draws the same cases in every run, so that a change and not
chance decides whether they pass; ``HYPOTHESIS_PROFILE=random`` draws others.

Nova 33 loads eventlet, which the agent refuses from its first import on. So
Nova comes before all tests.
"""

import os

import hypothesis

os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'

from nova import monkey_patch

monkey_patch.patch()

# A busy machine is slow, and no failure.
_PATIENT = hypothesis.settings(
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    database=None,
)
hypothesis.settings.register_profile('random', _PATIENT)
hypothesis.settings.register_profile('same', _PATIENT, derandomize=True)
hypothesis.settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'same'))
