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

"""Whether a VM is on its way from one host to another."""

from typing import Any

import libvirt


def leaves(domain: Any) -> bool:
    """Whether a job is sending the VM away.

    Any unbounded job counts: libvirt tells the kind of a job only in
    statistics that it must ask QEMU for.

    :raises libvirt.libvirtError: libvirt cannot tell.
    """
    kind = domain.jobInfo()[0]
    return bool(kind == libvirt.VIR_DOMAIN_JOB_UNBOUNDED)


def comes(domain: Any) -> bool:
    """Whether a VM is still on its way here.

    libvirt holds writes to it up until then, or until they time out.

    :raises libvirt.libvirtError: libvirt cannot tell.
    """
    try:
        domain.jobInfo()
    except libvirt.libvirtError as error:
        # The job's figures are the other host's to tell.
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_UNSUPPORTED:
            return True
        raise
    return False
