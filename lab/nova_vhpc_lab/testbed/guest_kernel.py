# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Fetch the kernel that the guests boot.

It is the distribution's own kernel for virtual machines, downloaded by
``apt-get download`` and unpacked, but not installed. Debian and Ubuntu name,
pack and compress it differently, and have different drivers built in.
"""

import lzma
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from nova_vhpc_lab.testbed import errors, toolchain

METAPACKAGES = ('linux-image-cloud-amd64', 'linux-image-virtual')
"""Debian's and Ubuntu's; the first one that apt knows is used."""

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
"""Paths below ``kernel/`` of the modules' directory, in loading order."""


def _piped(*command: str) -> Callable[[bytes], bytes]:
    """Return a function that decompresses by a program.

    The function returns nothing (``b''``) if the program is not installed.
    """

    def decompress(data: bytes) -> bytes:
        if shutil.which(command[0]) is None:
            return b''
        return subprocess.run(command, input=data, capture_output=True).stdout

    return decompress


def _unxz(data: bytes) -> bytes:
    try:
        return lzma.LZMADecompressor().decompress(data)
    except lzma.LZMAError:
        return b''


def _gunzip(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(data)
    except zlib.error:
        return b''


_COMPRESSIONS: tuple[tuple[bytes, str, Callable[[bytes], bytes]], ...] = (
    (b'\x02\x21\x4c\x18', 'lz4', _piped('lz4', '-d', '-c', '-')),
    (b'\x28\xb5\x2f\xfd', 'zst', _piped('zstd', '-d', '-c')),
    (b'\xfd7zXZ\x00', 'xz', _unxz),
    (b'\x1f\x8b\x08', 'gz', _gunzip),
)
"""Magic number, file name suffix and decompressor of each format."""


def uncompressed(bzimage: bytes) -> bytes:
    """Return the ELF kernel inside a bzImage, or the bzImage if there is none.

    An ELF kernel boots faster, because the guest does not have to decompress
    it under emulation.
    """
    if bzimage[0x202:0x206] != b'HdrS':
        return bzimage
    # Offsets of setup_sects, payload_offset and payload_length: Linux'
    # Documentation/arch/x86/boot.rst. The kernel's build appends the
    # uncompressed size to the payload.
    setup = (bzimage[0x1F1] or 4) + 1
    offset, length = struct.unpack_from('<II', bzimage, 0x248)
    payload = bzimage[setup * 512 + offset :][:length]
    size = int.from_bytes(payload[-4:], 'little')
    for magic, _, decompress in _COMPRESSIONS:
        if payload.startswith(magic):
            elf = decompress(payload[:-4])
            if len(elf) == size and elf.startswith(b'\x7fELF'):
                return elf
    return bzimage


def collect_modules(modules: Path, target: Path) -> None:
    """Copy :data:`MODULES`, decompressed, and write their loading order.

    Modules that are built into the kernel are left out. The file ``order``
    in ``target`` lists the others.

    :param modules: the directory ``lib/modules/RELEASE`` of the kernel.
    :param target: an existing directory to write to.
    :raises ImageError: a module neither exists nor is built in.
    """
    builtin = set((modules / 'modules.builtin').read_text().split())
    order = []
    for module in MODULES:
        if f'kernel/{module}.ko' in builtin:
            continue
        name = module.split('/')[-1]
        (target / f'{name}.ko').write_bytes(_module(modules, module))
        order.append(name)
    (target / 'order').write_text(''.join(f'{name}\n' for name in order))


def _module(modules: Path, module: str) -> bytes:
    """Return the decompressed content of one module."""
    plain = modules / 'kernel' / f'{module}.ko'
    if plain.exists():
        return plain.read_bytes()
    for _, suffix, decompress in _COMPRESSIONS:
        packed = plain.with_suffix(f'.ko.{suffix}')
        if packed.exists():
            data = decompress(packed.read_bytes())
            if not data:
                raise errors.ImageError(
                    f'{packed.name} cannot be decompressed; is {suffix} '
                    'installed (packages xz-utils, zstd, lz4)?'
                )
            return data
    raise errors.ImageError(
        f'the kernel {modules.name} has no module {module}'
    )


def fetch(cache: Path) -> Path:
    """Return a directory with ``kernel`` and ``modules`` of the newest kernel.

    :param cache: directory that keeps fetched kernels. A kernel that it
        already holds is used, and nothing is downloaded.
    :raises ImageError: apt has no kernel, or a tool is missing.
    """
    present = sorted(cache.glob('kernel-*/modules/order'))
    if present:
        return present[-1].parent.parent
    package, release = _newest()
    tree = cache / f'kernel-{release}'
    # apt warns if its sandbox user cannot write to the directory.
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        scratch.chmod(0o777)
        toolchain.run_tool(
            'apt-get', 'download', *_packages(package), cwd=scratch
        )
        root = scratch / 'root'
        for archive in scratch.glob('*.deb'):
            toolchain.run_tool('dpkg-deb', '-x', str(archive), str(root))
        shutil.rmtree(tree, ignore_errors=True)
        try:
            _collect(root, release, tree)
        except BaseException:
            # A partial tree is of no use, and the disk may be full.
            shutil.rmtree(tree, ignore_errors=True)
            raise
    return tree


def _collect(root: Path, release: str, tree: Path) -> None:
    """Copy kernel and modules from the unpacked packages."""
    (tree / 'modules').mkdir(parents=True)
    compressed = root / 'boot' / f'vmlinuz-{release}'
    (tree / 'kernel').write_bytes(uncompressed(compressed.read_bytes()))
    builtin = next(root.glob(f'**/modules/{release}/modules.builtin'))
    # Last, because its file "order" marks the tree as complete.
    collect_modules(builtin.parent, tree / 'modules')


def _newest() -> tuple[str, str]:
    """Return the package name of the newest kernel, and its release."""
    for metapackage in METAPACKAGES:
        # apt-cache fails for a package that it does not know.
        depends = toolchain.run_tool(
            'apt-cache', 'depends', metapackage, may_fail=True
        )
        match = re.search(r'Depends:\s+(linux-image-(\S+))', depends)
        if match is not None:
            return match[1], match[2]
    raise errors.ImageError(
        f'apt knows none of {", ".join(METAPACKAGES)}; run apt-get update'
    )


def _packages(package: str) -> list[str]:
    """Return the kernel's package, and its modules' if that is separate."""
    depends = toolchain.run_tool('apt-cache', 'depends', package)
    modules = re.findall(r'Depends:\s+(linux-modules-\S+)', depends)
    return [package, *modules]
