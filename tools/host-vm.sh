#!/usr/bin/env bash
# Boot a machine like an operator's under QEMU (emulated, no KVM), install our wheel
# and unit there, and check the agent's job on small guests inside: a distribution's
# kernel, systemd, cgroup v2, AppArmor, libvirt and QEMU. Needs root, 4 GB of disk in
# $VHPC_HOST_VM (default /var/cache/nova-vhpc/host-vm), which is kept, and 2 GiB of
# memory.
#
#   tools/host-vm.sh [debian12|debian13|debian13-modular]     default: debian12
#
# debian13-modular has virtqemud instead of libvirtd, which Debian does not build; it is
# built here from the source of Debian's package.
# The last line is "N passed, N failed".
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$TOP_DIR"

system=${1:-debian12}
case $system in
debian12) suite=bookworm ;;
debian13 | debian13-modular) suite=trixie ;;
*) die "no system '$system'; there are: debian12 debian13 debian13-modular" ;;
esac
PACKAGES="linux-image-cloud-amd64 initramfs-tools systemd-sysv systemd-container dbus
    apparmor libvirt-daemon-system libvirt-clients qemu-system-x86 python3-venv python3-apt
    python3-libvirt python3-packaging python3-setuptools ca-certificates kmod procps iproute2"
PLACE=${VHPC_HOST_VM:-/var/cache/nova-vhpc/host-vm}/$system
ROOT=$PLACE/root
# Longest time that the machine may take, in seconds.
PATIENCE=${VHPC_HOST_VM_PATIENCE:-5400}
[ "$(id -u)" = 0 ] || die "run as root: it makes a system in $PLACE"

# in_root COMMAND...: run a command in the system in $ROOT, without starting services.
in_root() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --propagation private bash -euc '
        root=$0
        mount -t proc proc "$root/proc"
        mount -t devtmpfs dev "$root/dev"
        exec chroot "$root" env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 "$@"
    ' "$ROOT" "$@"
}

# logged COMMAND...: run a command; show the end of its output only if it fails.
logged() {
    "$@" >"$PLACE/log" 2>&1 || {
        tail -n 30 "$PLACE/log" >&2
        die "failed: $*"
    }
}

# made NAME INPUT: whether the part of the image was made of the same input.
made() {
    [ -e "$PLACE/$1.stamp" ] && [ "$(cat "$PLACE/$1.stamp")" = "$2" ]
}

# The distribution's packages, as its installer and `apt-get install` leave them.
make_system() {
    local unit profile
    say "making $system in $ROOT"
    rm -rf --one-file-system "$PLACE"
    mkdir -p "$ROOT"
    logged debootstrap --variant=minbase "$suite" "$ROOT" "$(debian_mirror)"
    # Mirrors may be behind a proxy whose certificate this machine trusts.
    mkdir -p "$ROOT/usr/local/share/ca-certificates"
    cp /usr/local/share/ca-certificates/*.crt \
        "$ROOT/usr/local/share/ca-certificates/" 2>/dev/null || true
    cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
    printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d"
    chmod 755 "$ROOT/usr/sbin/policy-rc.d"
    logged in_root apt-get update -qq
    # shellcheck disable=SC2086
    logged in_root apt-get install -y -qq --no-install-recommends $PACKAGES
    logged in_root apt-get clean
    rm -rf "$ROOT/usr/sbin/policy-rc.d" "$ROOT"/var/lib/apt/lists/*
    # What an emulated machine would do for long: load drivers and profiles that it
    # does not need.
    echo MODULES=list >"$ROOT/etc/initramfs-tools/conf.d/host-vm"
    printf '%s\n' virtio_pci virtio_blk ext4 >>"$ROOT/etc/initramfs-tools/modules"
    logged in_root update-initramfs -u
    for profile in "$ROOT"/etc/apparmor.d/*; do
        case ${profile##*/} in
        usr.sbin.libvirtd | usr.lib.libvirt.*) ;;
        *) [ -d "$profile" ] || ln -s "/etc/apparmor.d/${profile##*/}" "$ROOT/etc/apparmor.d/disable/" ;;
        esac
    done
    echo hostvm >"$ROOT/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 hostvm\n' >"$ROOT/etc/hosts"
    echo '/dev/vda / ext4 rw,noatime 0 1' >"$ROOT/etc/fstab"
    logged in_root systemd-machine-id-setup
    # Nothing of what is checked; they only take time. libvirt-guests would wait five
    # minutes at a reboot for guests that do not listen.
    for unit in getty@tty1.service serial-getty@ttyS0.service apt-daily.timer \
        apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
        e2scrub_reap.service systemd-networkd.service networking.service \
        libvirt-guests.service; do
        ln -sf /dev/null "$ROOT/etc/systemd/system/$unit"
    done
    cp tools/host-vm/host-vm-checks.service "$ROOT/etc/systemd/system/"
    logged in_root systemctl enable host-vm-checks.service
}

# Modular daemons in place of libvirtd, built in a copy of the system.
make_modular() {
    say "building virtqemud"
    rm -rf --one-file-system "$PLACE/build"
    cp -a "$ROOT" "$PLACE/build"
    cp tools/host-vm/modular.sh "$PLACE/build/"
    ROOT=$PLACE/build logged in_root sh /modular.sh
    tar -cf - -C "$PLACE/build/modular" . | tar -xf - -C "$ROOT" --keep-directory-symlink
    rm -rf --one-file-system "$PLACE/build"
    logged in_root systemctl disable libvirtd.service libvirtd.socket libvirtd-ro.socket \
        libvirtd-admin.socket
    logged in_root systemctl enable virtqemud.service virtqemud.socket virtqemud-ro.socket \
        virtqemud-admin.socket virtlogd.socket
}

make_wheel() {
    rm -rf "$ROOT/payload"
    mkdir -p "$ROOT/payload"
    logged python -m pip wheel -q --no-deps --no-build-isolation -w "$ROOT/payload" .
}

# What the role would take long for there: the environment that it installs into, with
# all that the agent requires but the wheel itself. And Ansible for the machine.
make_environments() {
    say "installing the Python packages into $ROOT"
    make_wheel
    # libvirt's is the distribution's.
    sed /^libvirt-python/d constraints.txt >"$ROOT/payload/constraints.txt"
    logged in_root update-ca-certificates
    # shellcheck disable=SC2016
    logged in_root sh -euc '
        export PIP_CONSTRAINT=/payload/constraints.txt
        python3 -m venv --clear --system-site-packages /opt/nova-vhpc
        /opt/nova-vhpc/bin/pip install -q "$(echo /payload/*.whl)[agent]"
        /opt/nova-vhpc/bin/pip uninstall -q -y nova-vhpc
        python3 -m venv --clear /var/lib/hostvm/ansible
        /var/lib/hostvm/ansible/bin/pip install -q ansible-core'
    rm -rf "$ROOT/payload"
}

make_image() {
    say "making $PLACE/root.img"
    rm -f "$PLACE/root.img"
    logged mke2fs -q -t ext4 -E root_owner=0:0 -d "$ROOT" "$PLACE/root.img" 4G
}

# What the machine gets of this clone: a tar archive, which it sees as a disk.
make_payload() {
    local tree=$work/payload/var/lib/hostvm
    make_wheel
    mkdir -p "$tree/wheels"
    mv "$ROOT"/payload/*.whl "$tree/wheels"
    rm -rf "$ROOT/payload"
    python -m zipfile -e "$tree"/wheels/*.whl "$tree/lib"
    cp -r deploy/ansible "$tree/deploy"
    cp tools/host-vm/start.sh tools/host-vm/emulated.conf "$tree"
    # The machine has no compiler.
    python -c 'import pathlib, sys; from nova_vhpc_lab.testbed import spinner
spinner.build(pathlib.Path(sys.argv[1]))' "$tree"
    tar -cf "$work/payload.tar" -C "$work/payload" var
}

# Boot; the report comes by the second serial port. QEMU ends when the machine is
# powered off.
boot() {
    local kernel initrd status=0 follower
    kernel=$(echo "$ROOT"/boot/vmlinuz-*)
    initrd=$(echo "$ROOT"/boot/initrd.img-*)
    : >"$work/report"
    tail -n +1 -f "$work/report" &
    follower=$!
    TMPDIR=$work timeout --foreground "$PATIENCE" qemu-system-x86_64 -accel tcg,thread=multi \
        -cpu Nehalem -smp 2 -m 2048 -nodefaults -no-user-config -display none \
        -kernel "$kernel" -initrd "$initrd" -append "root=/dev/vda console=ttyS0 \
systemd.unified_cgroup_hierarchy=1 apparmor=1 security=apparmor mitigations=off \
nowatchdog systemd.show_status=0 systemd.default_timeout_start_sec=600 \
systemd.default_device_timeout_sec=600" \
        -drive "file=$PLACE/root.img,format=raw,if=virtio,snapshot=on" \
        -drive "file=$work/payload.tar,format=raw,if=virtio,readonly=on" \
        -serial "file:$work/console" -serial "file:$work/report" \
        -device virtio-rng-pci || status=$?
    sleep 1
    kill "$follower"
    wait "$follower" 2>/dev/null || true
    if [ "$status" = 124 ]; then
        echo "the machine did not end within $PATIENCE s" >&2
    fi
    if ! grep -q '^[0-9]* passed, 0 failed' "$work/report"; then
        echo "end of the machine's console:" >&2
        tail -n 60 "$work/console" >&2
    fi
}

for program in debootstrap qemu-system-x86_64 mke2fs; do
    command -v "$program" >/dev/null ||
        apt_install debootstrap qemu-system-x86 e2fsprogs
done
# shellcheck disable=SC2119
ensure_venv
export PATH=$VENV/bin:$PATH
mkdir -p "$PLACE"
exec 8<"$PLACE"
flock 8
wanted=$(sha256sum <<<"$suite $PACKAGES $(declare -f make_system) \
$(cat tools/host-vm/host-vm-checks.service)")
[ "$system" != debian13-modular ] ||
    wanted+=$(sha256sum <<<"$(declare -f make_modular) $(cat tools/host-vm/modular.sh)")
made system "$wanted" || {
    make_system
    [ "$system" != debian13-modular ] || make_modular
    echo "$wanted" >"$PLACE/system.stamp"
}
wanted+=$(cat pyproject.toml requirements.txt constraints.txt | sha256sum)
wanted+=$(declare -f make_environments make_image | sha256sum)
made image "$wanted" || {
    make_environments
    make_image
    echo "$wanted" >"$PLACE/image.stamp"
}
work=$(mktemp -d "${TMPDIR:-/tmp}/vhpc-host-vm-XXXXXX")
trap 'rm -rf "$work"' EXIT
make_payload
say "booting $system"
boot
say "took $SECONDS s"
tail -n 1 "$work/report" | tee "$work/totals"
grep -q '^[0-9]* passed, 0 failed' "$work/totals" || {
    [ -s "$work/totals" ] || echo "0 passed, 1 failed"
    exit 1
}
