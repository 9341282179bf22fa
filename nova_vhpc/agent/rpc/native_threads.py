# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""oslo.messaging with the threading backend.

Import oslo_messaging through this package only: otherwise it makes
oslo.service choose eventlet, which the agent refuses to load, and fail.
"""

from oslo_service import backend

backend.init_backend(backend.BackendType.THREADING)

import oslo_messaging as messaging  # noqa: E402

__all__ = ['messaging']
