# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A domain as Nova 2026.2 defines it on Open vSwitch."""


class Domain:
    """What a binder of Open vSwitch's ports reads of libvirt's domain.

    :param macs: MAC addresses of its NICs.
    """

    def __init__(self, uuid: str, macs: tuple[str, ...]) -> None:
        self._uuid = uuid
        self._macs = macs

    def UUIDString(self) -> str:
        return self._uuid

    def XMLDesc(self, flags: int) -> str:
        """Return its NICs: the XML names neither bridge nor port."""
        nics = ''.join(
            f"<interface type='ethernet'><mac address='{mac}'/>"
            f"<target dev='tap{mac[-2:]}' managed='no'/></interface>"
            for mac in self._macs
        )
        return f'<domain><devices>{nics}</devices></domain>'
