# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
