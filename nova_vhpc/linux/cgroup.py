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

"""Find the control group controllers of a host and their version.

A *hybrid* host has cgroup v2 at ``unified`` below the mounts of v1, mostly
without any controller that matters here, but it may have some of them.
"""

from pathlib import Path


def controllers(root: Path) -> set[str]:
    """Return the names of the usable controllers, of both versions.

    :param root: where the cgroup file systems are mounted.
    """
    if not root.is_dir():
        return set()
    found = _unified(root)
    if found is not None:
        return found
    # cgroup v1 has one hierarchy per controller, or several joined by a comma.
    return (_unified(root / 'unified') or set()) | {
        name
        for entry in root.iterdir()
        if entry.is_dir()
        for name in entry.name.split(',')
    }


def cpu_is_v2(root: Path) -> bool:
    """Return whether the cpu controller is cgroup v2.

    Its files and the range of its weights differ from v1.

    :param root: where the cgroup file systems are mounted.
    """
    if (root / 'cgroup.controllers').exists():
        return True
    return 'cpu' in (_unified(root / 'unified') or ())


def _unified(where: Path) -> set[str] | None:
    """Return the controllers of a cgroup2 mount; None if it is none."""
    try:
        return set((where / 'cgroup.controllers').read_text().split())
    except OSError:
        return None
