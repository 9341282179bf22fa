# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Build the image that the guests boot: a kernel and our workloads.

The initramfs holds busybox, the virtio modules and one static C program with
all workloads (``programs/``), and, where they are wanted, programs with real
MPI and OpenMP libraries. Kernel and initramfs are kept in a cache; the
initramfs is built again if a source, a library or the kernel changes.
"""

import dataclasses
import errno
import fcntl
import functools
import hashlib
import importlib.resources
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from nova_vhpc_lab.testbed import (
    errors,
    guest_kernel,
    parallel_programs,
    toolchain,
)

SOURCES = (
    'main.c',
    'barrier.c',
    'independent.c',
    'network.c',
    'launch.c',
    'vhpc.h',
    'init.sh',
    'lease.sh',
    'parallel.sh',
)


@dataclasses.dataclass(frozen=True, slots=True)
class GuestImage:
    """The files that a guest boots.

    :ivar kernel: an uncompressed ELF kernel (PVH entry), or a bzImage.
    :ivar initrd: the initramfs, a newc cpio archive.
    """

    kernel: Path
    initrd: Path


def default_cache() -> Path:
    """Return the directory for images, ``$XDG_CACHE_HOME/nova-vhpc``."""
    base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    return Path(base).expanduser().absolute() / 'nova-vhpc'


def build_image(
    cache: Path | None = None, *, parallel: bool = False
) -> GuestImage:
    """Return kernel and initramfs, from the cache or newly built.

    Several processes may call this at the same time.

    :param cache: directory for the image, created if missing; by default
        :func:`default_cache`.
    :param parallel: whether the guests run programs of MPI and OpenMP
        libraries; see :data:`.parallel_programs.MEMORY_MIB`.
    :raises ImageError: a tool or package is missing, the cache cannot be
        written, or the build failed. The message holds the tool's output.
    """
    cache = cache or default_cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / 'lock').touch()
    except OSError as error:
        raise errors.ImageError(
            f"no place for the guests' image: {error}; set XDG_CACHE_HOME"
        ) from None
    with open(cache / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return _build(cache, parallel)
        except OSError as error:
            hint = ''
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                hint = (
                    f'; it takes some 100 MB in {cache} (XDG_CACHE_HOME) and '
                    '200 MB of temporary files (TMPDIR)'
                )
            raise errors.ImageError(
                f"the guests' image cannot be built: {error}{hint}"
            ) from None


def _build(cache: Path, parallel: bool) -> GuestImage:
    tree = guest_kernel.fetch(cache)
    digest = _digest(tree)
    if parallel:
        digest += f'-{parallel_programs.digest()}'
    initrd = cache / f'initrd-{digest}.cpio'
    if not initrd.exists():
        partial = initrd.with_suffix('.partial')
        try:
            _build_initrd(tree, partial, parallel)
            partial.rename(initrd)
        finally:
            # On a full disk it would occupy the space that is left.
            partial.unlink(missing_ok=True)
    return GuestImage(kernel=tree / 'kernel', initrd=initrd)


@functools.cache
def _sources() -> dict[str, bytes]:
    package = importlib.resources.files('nova_vhpc_lab.testbed.programs')
    return {name: (package / name).read_bytes() for name in SOURCES}


def _digest(tree: Path) -> str:
    digest = hashlib.sha256(tree.name.encode())
    for name, content in sorted(_sources().items()):
        digest.update(name.encode() + b'\0' + content + b'\0')
    return digest.hexdigest()[:16]


def _build_initrd(tree: Path, initrd: Path, parallel: bool) -> None:
    busybox = toolchain.need('busybox')
    cpio = toolchain.need('cpio')
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
        toolchain.run_tool(
            *('gcc', '-std=gnu11', '-O2', '-Wall', '-static', '-pthread'),
            *('-o', str(program), *files),
        )
        shutil.copy(busybox, root / 'bin/busybox')
        for applet in (
            'sh',
            'cat',
            'mount',
            'insmod',
            'ip',
            'sleep',
            'ping',
            'udhcpc',
            'grep',
            'mkdir',
        ):
            (root / 'bin' / applet).symlink_to('busybox')
        for module in (tree / 'modules').iterdir():
            shutil.copy(module, root / 'modules')
        for script, target in (
            ('init.sh', root / 'init'),
            ('lease.sh', root / 'bin/dhcp-lease'),
            ('parallel.sh', root / 'bin/parallel'),
        ):
            shutil.copy(sources / script, target)
            target.chmod(0o755)
        if parallel:
            parallel_programs.build(root, scratch)
        with open(initrd, 'wb') as output:
            names = sorted(str(p.relative_to(root)) for p in root.rglob('*'))
            done = subprocess.run(
                [cpio, '--quiet', '-o', '-H', 'newc'],
                input='\n'.join(names).encode(),
                stdout=output,
                stderr=subprocess.PIPE,
                cwd=root,
            )
        if done.returncode != 0:
            raise errors.ImageError(
                f'cpio failed: {done.stderr.decode()[-500:]}'
            )
