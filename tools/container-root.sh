#!/usr/bin/env bash
# Make a directory with a small compute host of this machine's distribution: systemd,
# libvirt, QEMU and Python. tools/container/boot.sh boots it, and functional tests lay a
# directory of their own over it. Besides it has, in /wheelhouse, the wheels that the
# agent needs, so that pip installs there without a network.
#
#   tools/container-root.sh [DIRECTORY]     default: $VHPC_CONTAINER_ROOT, or
#                                           /var/cache/nova-vhpc/container-root
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

ROOT=${1:-${VHPC_CONTAINER_ROOT:-/var/cache/nova-vhpc/container-root}}
# libpam-systemd provides logind, which polkitd needs: debootstrap of Debian 12 takes the
# first alternative of a dependency and knows no virtual packages.
PACKAGES=systemd,systemd-sysv,libpam-systemd,dbus,iproute2,procps,ca-certificates,netbase,python3
PACKAGES+=,python3-venv,python3-pip,python3-apt,python3-libvirt,python3-packaging
PACKAGES+=,python3-setuptools,libvirt-daemon-system,libvirt-clients,qemu-system-x86

want=$(cat "$0" "$CONSTRAINTS" "$TOP_DIR/requirements.txt" "$TOP_DIR/pyproject.toml" |
    sha256sum)
[ "$(cat "$ROOT/.complete" 2>/dev/null)" != "$want" ] || exit 0
[ "$(id -u)" = 0 ] || die "must run as root to make $ROOT"
command -v debootstrap >/dev/null || apt_install debootstrap
# shellcheck disable=SC2016
mirror=${VHPC_DEBIAN_MIRROR:-$(
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '/^(Debian Debian|Ubuntu Ubuntu) / && !found++ { print $3 }'
)}
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
log=$(mktemp "${TMPDIR:-/tmp}/vhpc-root-XXXXXX")
if [ "$(cat "$ROOT/.bootstrapped" 2>/dev/null)" != "$PACKAGES" ]; then
    say "unpacking a compute host with $codename into $ROOT"
    rm -rf "$ROOT"
    mkdir -p "$ROOT"
    debootstrap --variant=minbase --include="$PACKAGES" "$codename" "$ROOT" \
        "${mirror:-http://deb.debian.org/debian}" >"$log" 2>&1 || {
        tail -n 20 "$log" "$ROOT/debootstrap/debootstrap.log" >&2 || true
        die "debootstrap failed; its output is in $log"
    }
    rm -f "$ROOT"/var/cache/apt/archives/*.deb
    # Not a terminal, nothing to settle with hardware, no clock and no network of its own.
    for unit in systemd-udevd.service systemd-udevd-kernel.socket \
        systemd-udevd-control.socket systemd-udev-trigger.service \
        systemd-timesyncd.service systemd-resolved.service getty.target \
        console-getty.service apt-daily.timer apt-daily-upgrade.timer; do
        ln -sf /dev/null "$ROOT/etc/systemd/system/$unit"
    done
    printf '%s' "$PACKAGES" >"$ROOT/.bootstrapped"
fi
say "gathering the agent's wheels in $ROOT/wheelhouse"
mkdir -p "$ROOT/wheelhouse"
cp -L /etc/resolv.conf "$ROOT/etc/resolv.conf"
cp -L /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/"
cp "$CONSTRAINTS" "$ROOT/wheelhouse/constraints.txt"
# libvirt-python is not built, because the distribution's own is there.
python3 - "$TOP_DIR" >"$ROOT/wheelhouse/requirements.txt" <<'PY'
import pathlib
import sys
import tomllib

top = pathlib.Path(sys.argv[1])
project = tomllib.loads((top / 'pyproject.toml').read_text())['project']
for line in project['optional-dependencies']['agent']:
    if not line.startswith('libvirt-python'):
        print(line)
print((top / 'requirements.txt').read_text())
# To build our own wheel there.
print('pbr', 'setuptools', sep='\n')
PY
mapfile -t settings < <("$VENV/bin/pip" config list 2>/dev/null | sed -nE \
    "s/^(global|:env:)\.((extra-)?index-url|trusted-host|proxy)='(\S+)'$/PIP_\U\2\E=\4/p" |
    sed -E 's/^(PIP_[A-Z]+)-/\1_/')
env "${settings[@]}" \
    chroot "$ROOT" python3 -m pip wheel -q --no-cache-dir -w /wheelhouse \
    -c /wheelhouse/constraints.txt -r /wheelhouse/requirements.txt >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "pip wheel failed; its output is in $log"
}
rm -f "$log"
printf '%s' "$want" >"$ROOT/.complete"
