#!/usr/bin/env bash
# Run a command in a clone of this tree on another Debian or Ubuntu, which is
# bootstrapped before and removed afterwards. It shows packages that bindep.txt
# lacks and this machine has. Needs root. The kernel is this machine's.
#
#   tools/elsewhere.sh trixie tools/test.sh
#   tools/elsewhere.sh noble tools/demo.sh
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

[ $# -ge 2 ] || die "usage: elsewhere.sh bookworm|trixie|noble COMMAND..."
suite=$1
shift

place=$(mktemp -d "${TMPDIR:-/tmp}/vhpc-elsewhere-XXXXXX")
trap 'rm -rf --one-file-system "$place"' EXIT
bootstrap "$suite" "$place/root" ca-certificates,init-system-helpers,mount,git
git clone -q "$TOP_DIR" "$place/root/root/clone"
# Mirrors may be behind a proxy whose certificate this machine trusts.
cp /usr/local/share/ca-certificates/*.crt \
    "$place/root/usr/local/share/ca-certificates/" 2>/dev/null || true
cp /etc/resolv.conf "$place/root/etc/resolv.conf"
printf '127.0.0.1 localhost\n127.0.1.1 elsewhere\n' >"$place/root/etc/hosts"

say "$* on $suite"
# pivot_root, because libvirt fails to give guests their own /dev in a chroot.
# shellcheck disable=SC2016
unshare --mount --pid --fork --ipc --uts --propagation private \
    bash -euc '
        root=$0
        mount --bind "$root" "$root"
        hostname elsewhere
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount -t devtmpfs dev "$root/dev"
        mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/.old"
        mount -t devpts -o ptmxmode=666 devpts "$root/dev/pts"
        mount -t tmpfs shm "$root/dev/shm"
        mount -t tmpfs run "$root/run"
        cd "$root"
        pivot_root . .old
        exec env -i HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
            bash -euc "
                umount -l /.old
                update-ca-certificates >/dev/null 2>&1
                cd /root/clone
                \"\$@\"
            " elsewhere "$@"
    ' "$place/root" "$@"
