# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests against real services: Nova, Placement, libvirt, QEMU, RabbitMQ.

Nova refuses to run with native threads if eventlet is loaded, so eventlet is
forbidden here, before the first test module is imported.
"""

import os

os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'

from nova import monkey_patch

monkey_patch.patch()
