# Containers for tools/devstack.sh; to be sourced after tools/lib.sh. A container has
# systemd as pid 1 and reaches the network as this machine's user does, by slirp4netns.
# shellcheck shell=bash

# What devstack and systemd need from the start; devstack installs the rest.
CONTAINER_PACKAGES=(
    systemd systemd-sysv libpam-systemd dbus sudo ca-certificates git iproute2 procps
    lsb-release python3 python3-venv python3-pip gnupg wget curl kmod netbase iptables
    nftables openssl acl file psmisc less gettext-base locales
)

# apt_mirror: print where the packages of this machine come from.
apt_mirror() {
    # "Debian" is also the origin of the security updates, which have another address.
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '/^Debian Debian / && !found++ { print $3 }'
}

# make_root ROOT RELEASE LOG: unpack a Debian release, and have its apt and pip ask the
# registries that this machine asks, by its rules and authorities.
make_root() {
    local root=$1 release=$2 log=$3 mirror packages
    mirror=${VHPC_DEBIAN_MIRROR:-$(apt_mirror)}
    mirror=${mirror:-http://deb.debian.org/debian}
    packages=$(IFS=,; echo "${CONTAINER_PACKAGES[*]}")
    debootstrap --variant=minbase --include="$packages" "$release" "$root" "$mirror" \
        >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        die "debootstrap failed; its output is in $log"
    }
    rm -f "$root"/var/cache/apt/archives/*.deb
    for suite in "$release" "$release-updates"; do
        echo "deb $mirror $suite main"
    done >"$root/etc/apt/sources.list"
    if [ "$release" = bookworm ]; then
        # devstack takes libvirt and QEMU from there; it would name a mirror of its own.
        echo "deb $mirror $release-backports main" \
            >"$root/etc/apt/sources.list.d/$release-backports.list"
    fi
    grep -Ehrs '^Acquire::[^{]*;$' /etc/apt/apt.conf /etc/apt/apt.conf.d \
        >"$root/etc/apt/apt.conf.d/90machine" || true
    cp -a /etc/apt/auth.conf.d/. "$root/etc/apt/auth.conf.d/" 2>/dev/null || true
    cp -rL /usr/local/share/ca-certificates/. \
        "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
    chroot "$root" update-ca-certificates >>"$log" 2>&1
    {
        echo '[global]'
        echo 'cert = /etc/ssl/certs/ca-certificates.crt'
        python3 -m pip config list 2>/dev/null | sed -nE \
            "s/^(global|:env:)\.((extra-)?index-url|trusted-host|proxy|(default-)?timeout)='(.*)'$/\2 = \5/p" |
            sed 's/^default-timeout/timeout/'
    } >"$root/etc/pip.conf"
    # As on OpenDev's machines; and a root that is thrown away needs no fsync.
    echo 'APT::Install-Recommends "0";' >"$root/etc/apt/apt.conf.d/95no-recommends"
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
    # No terminal, no hardware, no clock of its own.
    for unit in systemd-udevd.service systemd-udevd-kernel.socket \
        systemd-udevd-control.socket systemd-udev-trigger.service \
        systemd-timesyncd.service systemd-resolved.service getty.target \
        console-getty.service; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
}

# boot_container NAME ROOT: boot the container and give it a network. Its address is
# CONTAINER_ADDRESS in all containers; they do not see each other by it, but by
# connect_containers.
CONTAINER_ADDRESS=192.168.200.100
boot_container() {
    local name=$1 root=$2 end
    echo 'nameserver 192.168.200.3' >"$root/etc/resolv.conf"
    echo "$name" >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n%s %s\n' "$CONTAINER_ADDRESS" "$name" >"$root/etc/hosts"
    "$TOP_DIR/tools/container/boot.sh" "$root" "$name" </dev/null >>"$WORK/$name.boot" 2>&1 &
    BOOTED[$name]=$!
    end=$((SECONDS + 120))
    until PIDS[$name]=$(pgrep -P "${BOOTED[$name]}" systemd); do
        kill -0 "${BOOTED[$name]}" 2>/dev/null && [ "$SECONDS" -lt "$end" ] || {
            tail -n 20 "$WORK/$name.boot" >&2
            die "container $name does not boot"
        }
        sleep 0.2
    done
    slirp4netns --configure --mtu=1500 --disable-host-loopback --cidr=192.168.200.0/24 \
        "${PIDS[$name]}" tap0 </dev/null >"$WORK/$name.slirp" 2>&1 &
    SLIRPS[$name]=$!
    until is_ready "$name"; do
        [ "$SECONDS" -lt "$end" ] || die "container $name: systemd does not get ready"
        sleep 0.5
    done
}
declare -gA BOOTED=() PIDS=() SLIRPS=()

# connect_containers NAME NAME: lay a cable between two containers that were booted, with
# an interface cable0 and one of CABLE_ADDRESSES at each end.
CABLE_ADDRESSES=(192.168.201.11 192.168.201.12)
connect_containers() {
    local name index=0
    ip link add cable0 netns "${PIDS[$1]}" type veth peer name cable0 netns "${PIDS[$2]}"
    for name in "$@"; do
        run_in "$name" ip address add "${CABLE_ADDRESSES[index]}/24" dev cable0
        run_in "$name" ip link set cable0 up
        index=$((index + 1))
    done
}

# is_ready NAME: whether systemd has started its units, and the network is there.
is_ready() {
    case $(run_in "$1" systemctl is-system-running 2>/dev/null) in
        running | degraded) run_in "$1" ip route get 192.168.200.3 >/dev/null 2>&1 ;;
        *) return 1 ;;
    esac
}

# run_in NAME COMMAND...: run a command in the container, as root.
run_in() {
    local name=$1
    shift
    nsenter -t "${PIDS[$name]}" -m -u -i -n -p -C env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LANG=C.UTF-8 TERM=dumb "$@"
}

# stop_containers: end all containers, wait for their processes, remove their cgroups.
stop_containers() {
    local name
    for name in "${!BOOTED[@]}"; do
        kill "${SLIRPS[$name]:-}" 2>/dev/null || true
        kill -KILL "${PIDS[$name]}" 2>/dev/null || true
        wait "${BOOTED[$name]}" 2>/dev/null || true
        find /sys/fs/cgroup -depth -type d -path "*/$name-${BOOTED[$name]}*" -exec rmdir {} \; 2>/dev/null || true
    done
    BOOTED=()
}
