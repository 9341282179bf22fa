#!/usr/bin/env bash
# Make a directory with Open vSwitch and OVN of Debian 13, for functional tests. Older
# distributions have an OVN that sends from one encap IP only. Nothing there is started
# or configured; the tests run its programs from where they are.
#
#   tools/ovn-root.sh [DIRECTORY]     default: $VHPC_OVN_ROOT, or
#                                     /var/cache/nova-vhpc/ovn-root
#
# The packages come from $VHPC_DEBIAN_MIRROR, or else, on Debian, from where apt has
# its own.
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

ROOT=${1:-${VHPC_OVN_ROOT:-/var/cache/nova-vhpc/ovn-root}}
PACKAGES=openvswitch-switch,ovn-central,ovn-host,iputils-ping,ethtool

[ ! -e "$ROOT/.complete" ] || exit 0
[ "$(id -u)" = 0 ] || die "must run as root to make $ROOT"
command -v debootstrap >/dev/null || apt_install debootstrap
say "unpacking Open vSwitch and OVN of Debian 13 into $ROOT"
rm -rf "$ROOT"
mkdir -p "$ROOT"
log=$(mktemp "${TMPDIR:-/tmp}/vhpc-ovn-XXXXXX")
if ! debootstrap --variant=minbase --include="$PACKAGES" trixie "$ROOT" "$(debian_mirror)" \
    >"$log" 2>&1; then
    tail -n 20 "$log" "$ROOT/debootstrap/debootstrap.log" >&2 || true
    die "debootstrap failed; its output is in $log"
fi
rm -rf "$log" "$ROOT"/var/cache/apt/archives/*.deb
touch "$ROOT/.complete"
