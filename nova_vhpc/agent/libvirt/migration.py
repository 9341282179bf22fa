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

"""Find out whether a domain is being migrated from or to this host."""

from typing import Any

import libvirt


def leaves(domain: Any) -> bool:
    """Return whether a job migrates the domain to another host.

    Any unbounded job counts: libvirt reports the kind of a job only in
    statistics for which it must query QEMU.

    :raises libvirt.libvirtError: libvirt cannot say.
    """
    kind = domain.jobInfo()[0]
    return bool(kind == libvirt.VIR_DOMAIN_JOB_UNBOUNDED)


def comes(domain: Any) -> bool:
    """Return whether the domain is still being migrated to this host.

    Until the migration ends, libvirt delays writes to the domain, or they
    time out.

    :raises libvirt.libvirtError: libvirt cannot say.
    """
    try:
        domain.jobInfo()
    except libvirt.libvirtError as error:
        # Only the source host has the statistics of the job.
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_UNSUPPORTED:
            return True
        raise
    return False
