# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Filter and weigher in a real Nova with a real Placement, in process."""

import os

# Nova's functional tests default to eventlet, which Nova is leaving and
# which this project never imports. It must be set before nova is.
os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'
