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

"""Write ``cpu_shares`` directly to the file of a domain's control group."""

import contextlib
import pathlib
from typing import Any

from nova_vhpc.agent.libvirt import cputune


class WeightFile:
    """The weight file of one run of a domain.

    :param path: path of ``cpu.weight`` or ``cpu.shares``; None if the agent
        cannot write one.
    :ivar proven: libvirt has reported a value that was written to the file,
        so the file is the one that libvirt reads.
    """

    __slots__ = ('_path', 'proven')

    def __init__(self, path: pathlib.Path | None) -> None:
        self._path = path
        self.proven = False

    def write(self, domain: Any, shares: int) -> str:
        """Write the weight.

        :returns: why the weight was not written, and then the file is not
            used again; empty if it was written.
        :raises libvirt.libvirtError: libvirt cannot report the weight, so
            the file could not be proven.
        """
        if self._path is None:
            return 'it is in no control group that the agent can write'
        try:
            if self.proven:
                self._path.write_text(str(shares))
                return ''
            before = self._path.read_text()
            self._path.write_text(str(shares))
        except OSError as error:
            path, self._path = self._path, None
            self.proven = False
            return f'{path}: {error.strerror or error}'
        is_read = False
        try:
            parameters = domain.schedulerParametersFlags(cputune.LIVE)
            is_read = parameters.get(cputune.SHARES) == shares
        finally:
            if not is_read:
                with contextlib.suppress(OSError):
                    self._path.write_text(before)
        if is_read:
            # A value that was in the file before proves nothing.
            self.proven = before.strip() != str(shares)
            return ''
        path, self._path = self._path, None
        return f'{path} is not what libvirt reads'
