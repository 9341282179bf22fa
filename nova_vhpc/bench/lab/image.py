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


"""Build what the lab's guests boot: a Debian kernel and our workloads.

The kernel is Debian's cloud kernel, fetched by ``apt-get download``; the
initramfs holds busybox, the virtio modules and one static C program with
all workloads. Both are kept in a cache and built again only when a source
changes.
"""

import dataclasses
import fcntl
import functools
import hashlib
import importlib.resources
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

KERNEL_METAPACKAGE = 'linux-image-cloud-amd64'

MODULES = (
    'drivers/virtio/virtio_ring',
    'drivers/virtio/virtio',
    'drivers/virtio/virtio_pci_modern_dev',
    'drivers/virtio/virtio_pci_legacy_dev',
    'drivers/virtio/virtio_pci',
    'net/core/failover',
    'drivers/net/net_failover',
    'drivers/net/virtio_net',
    'drivers/block/virtio_blk',
)
"""Below ``kernel/`` of the modules' directory, in order of loading."""

SOURCES = (
    'main.c',
    'barrier.c',
    'independent.c',
    'network.c',
    'vhpc.h',
    'init.sh',
)

_LZ4_LEGACY_MAGIC = b'\x02\x21\x4c\x18'
_XZ_MAGIC = b'\xfd7zXZ\x00'


class ImageError(Exception):
    """The guest image cannot be built; says what is missing."""


@dataclasses.dataclass(frozen=True, slots=True)
class GuestImage:
    """What a guest boots.

    :ivar kernel: an uncompressed ELF kernel (PVH entry), or a bzImage.
    :ivar initrd: the initramfs, a newc cpio archive.
    """

    kernel: Path
    initrd: Path


def default_cache() -> Path:
    """Where images are kept: ``$XDG_CACHE_HOME/nova-vhpc``."""
    base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    return Path(base).expanduser() / 'nova-vhpc'


def build_image(cache: Path | None = None) -> GuestImage:
    """Build kernel and initramfs, or take them from the cache.

    Several processes may call this at the same time.

    :param cache: directory to keep them in; made when missing.
    :raises ImageError: when a tool or package is missing, or a build
        failed; the message holds the tool's own words.
    """
    cache = cache or default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tree = _kernel_tree(cache)
        digest = _digest(tree)
        initrd = cache / f'initrd-{digest}.cpio'
        if not initrd.exists():
            _build_initrd(tree, initrd)
        return GuestImage(kernel=tree / 'kernel', initrd=initrd)


def run_tool(*command: str, cwd: Path | None = None) -> str:
    """What a program that builds something prints.

    :raises ImageError: it is not installed, or fails.
    """
    if shutil.which(command[0]) is None:
        raise ImageError(
            f'{command[0]} is not installed; the lab needs apt, dpkg, gcc, '
            'cpio, lz4 and busybox-static'
        )
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        raise ImageError(
            f'{" ".join(command)} failed: {done.stderr.strip()[-500:]}'
        )
    return done.stdout


def _kernel_tree(cache: Path) -> Path:
    """Directory with ``kernel`` and ``modules/*.ko`` of the newest kernel."""
    present = sorted(cache.glob('kernel-*/complete'))
    if present:
        return present[-1].parent
    depends = run_tool('apt-cache', 'depends', KERNEL_METAPACKAGE)
    found = re.search(r'Depends:\s+(linux-image-(\S+))', depends)
    if found is None:
        raise ImageError(
            f'apt knows no {KERNEL_METAPACKAGE}; run apt-get update'
        )
    package, release = found.groups()
    tree = cache / f'kernel-{release}'
    # apt warns when its sandbox user cannot write to the directory.
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        scratch.chmod(0o777)
        run_tool('apt-get', 'download', package, cwd=scratch)
        archive = next(scratch.glob('*.deb'))
        run_tool('dpkg-deb', '-x', str(archive), str(scratch / 'root'))
        shutil.rmtree(tree, ignore_errors=True)
        (tree / 'modules').mkdir(parents=True)
        modules = scratch / 'root/lib/modules' / release / 'kernel'
        for module in MODULES:
            shutil.copy(modules / f'{module}.ko', tree / 'modules')
        compressed = scratch / 'root/boot' / f'vmlinuz-{release}'
        (tree / 'kernel').write_bytes(_uncompressed(compressed))
    (tree / 'complete').touch()
    return tree


def _uncompressed(bzimage: Path) -> bytes:
    """The ELF kernel inside a bzImage; the bzImage if it is not found.

    An ELF kernel boots faster: the guest need not unpack it under
    emulation.
    """
    data = bzimage.read_bytes()
    start = data.find(_LZ4_LEGACY_MAGIC)
    if start >= 0 and shutil.which('lz4'):
        # Rubbish follows the payload: lz4 ends unhappily but writes all.
        elf = subprocess.run(
            ['lz4', '-d', '-c', '-'], input=data[start:], capture_output=True
        ).stdout
        if elf.startswith(b'\x7fELF'):
            return elf
    start = data.find(_XZ_MAGIC)
    if start >= 0:
        try:
            elf = lzma.LZMADecompressor().decompress(data[start:])
        except lzma.LZMAError:
            return data
        if elf.startswith(b'\x7fELF'):
            return elf
    return data


@functools.cache
def _sources() -> dict[str, bytes]:
    package = importlib.resources.files('nova_vhpc.bench.lab.programs')
    return {name: (package / name).read_bytes() for name in SOURCES}


def _digest(tree: Path) -> str:
    digest = hashlib.sha256(tree.name.encode())
    for name, content in sorted(_sources().items()):
        digest.update(name.encode() + b'\0' + content + b'\0')
    return digest.hexdigest()[:16]


def _build_initrd(tree: Path, initrd: Path) -> None:
    busybox = shutil.which('busybox')
    if busybox is None:
        raise ImageError('busybox is not installed; get busybox-static')
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        sources = scratch / 'sources'
        sources.mkdir()
        for source, content in _sources().items():
            (sources / source).write_bytes(content)
        root = scratch / 'root'
        for directory in ('bin', 'proc', 'sys', 'dev', 'modules'):
            (root / directory).mkdir(parents=True)
        program = root / 'bin/vhpc-workload'
        files = [str(sources / s) for s in SOURCES if s.endswith('.c')]
        run_tool(
            *('gcc', '-std=gnu11', '-O2', '-Wall', '-static', '-pthread'),
            *('-o', str(program), *files),
        )
        shutil.copy(busybox, root / 'bin/busybox')
        for applet in ('sh', 'cat', 'mount', 'insmod', 'ip', 'sleep'):
            (root / 'bin' / applet).symlink_to('busybox')
        shutil.copytree(tree / 'modules', root / 'modules', dirs_exist_ok=True)
        order = '\n'.join(module.split('/')[-1] for module in MODULES)
        (root / 'modules/order').write_text(order + '\n')
        init = root / 'init'
        shutil.copy(sources / 'init.sh', init)
        init.chmod(0o755)
        partial = initrd.with_suffix('.partial')
        with open(partial, 'wb') as output:
            names = sorted(str(p.relative_to(root)) for p in root.rglob('*'))
            done = subprocess.run(
                ['cpio', '--quiet', '-o', '-H', 'newc'],
                input='\n'.join(names).encode(),
                stdout=output,
                stderr=subprocess.PIPE,
                cwd=root,
            )
        if done.returncode != 0:
            raise ImageError(f'cpio failed: {done.stderr.decode()[-500:]}')
        partial.rename(initrd)
