# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ask this host's libvirt for its version, as far as there is one."""

from pathlib import Path

from nova_vhpc.upgradecheck import checks

_SIGNS = ('/dev/kvm', '/etc/libvirt')
"""Paths that only a compute host has; one that emulates has no /dev/kvm."""


def check(uri: str, has_nova: bool) -> checks.Result:
    """Check that libvirt answers, where the agent is to run.

    :param uri: ``[vhpc_agent] libvirt_uri``.
    :param has_nova: whether nova is installed in this Python, as on a
        controller.
    """
    try:
        import libvirt

        from nova_vhpc.agent.libvirt import connection
    except ImportError as error:
        if _is_compute_host():
            return checks.agent_not_installed(str(error))
        return checks.success('the agent is not installed, nor a hypervisor.')
    # Errors come as exceptions; libvirt would also print them to stderr,
    # in front of the table.
    libvirt.registerErrorHandler(lambda context, error: None, None)
    try:
        conn = connection.open_within(
            uri, connection.SILENCE_S, libvirt.openReadOnly
        )
    except libvirt.libvirtError as error:
        if has_nova and not _is_compute_host():
            return checks.success('no hypervisor here: scheduler only.')
        return checks.libvirt(None, str(error))
    try:
        return checks.libvirt(conn.getLibVersion())
    finally:
        conn.close()


def _is_compute_host() -> bool:
    return any(Path(path).exists() for path in _SIGNS)
