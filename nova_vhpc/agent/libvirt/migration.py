# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
