#!/usr/bin/env bash
# Run the gate's job in a container: stack a real devstack with the plugin, run the
# smoke test, unstack, clean, stack again, and say what is left behind.
#
#   tools/devstack.sh [--single|--two-hosts] [--networks ovn|ovs]
#                     [--branch master|stable/2026.1] [--no-restack]
#                     [--directory DIR] [--keep]
#
#   --single       all on one node (default)
#   --two-hosts    a second container has nova-compute and the agent only, and each host
#                  gets a member of the cluster
#   --networks     who plugs the members' ports: OVN (default) or ML2 with the Open
#                  vSwitch agent
#   --branch       branch of devstack and of OpenStack's services (default: master)
#   --no-restack   end after clean
#   --directory    for the containers' roots and the logs; needs 8 GB a host (default:
#                  /var/tmp/nova-vhpc-devstack)
#   --keep         leave the roots and the logs there
#
# GIT_BASE in the environment names where OpenStack's repositories are: devstack's own
# default, or a directory with git repositories openstack/NAME, as on a machine without
# network. The plugin is the last commit of this clone. As root. The exit status is 0 if
# every step passed and nothing is left behind.
set -euo pipefail

# shellcheck source=tools/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tools/container/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/container/lib.sh"
# shellcheck source=tools/container/local_conf.sh
source "$(dirname "${BASH_SOURCE[0]}")/container/local_conf.sh"

# What a stack without block storage, dashboard and tests clones.
REPOSITORIES=(devstack keystone glance placement nova neutron requirements)

usage() {
    sed -n '/^#   /s/^# \{0,3\}//p' "$0"
}

parse() {
    HOSTS=(controller) NETWORKS=ovn BRANCH=master WORK=/var/tmp/nova-vhpc-devstack KEEP='' RESTACK=yes
    while [ $# -gt 0 ]; do
        case $1 in
            --single) HOSTS=(controller) ;;
            --two-hosts) HOSTS=(controller compute1) ;;
            --no-restack) RESTACK='' ;;
            --keep) KEEP=yes ;;
            --networks | --branch | --directory)
                [ -n "${2:-}" ] || die "$1 needs a value"
                case $1 in
                    --networks) NETWORKS=$2 ;;
                    --branch) BRANCH=$2 ;;
                    --directory) WORK=$2 ;;
                esac
                shift
                ;;
            -h | --help)
                usage
                exit 0
                ;;
            *) die "unknown argument $1; --help lists the options" ;;
        esac
        shift
    done
    case $NETWORKS in ovn | ovs) ;; *) die "--networks $NETWORKS: ovn or ovs" ;; esac
    case $BRANCH in
        master | stable/2026.1) ;;
        *) die "--branch $BRANCH: master or stable/2026.1" ;;
    esac
    case $WORK in /?*) ;; *) die "--directory $WORK: not an absolute path" ;; esac
    case ${GIT_BASE:=https://opendev.org} in
        *://*) ;;
        /*) GIT_BASE=file://$GIT_BASE ;;
        *) die "GIT_BASE=$GIT_BASE: neither an address nor an absolute path" ;;
    esac
}

# make_guest_image TARGET: pack kernel and initramfs of the test guests as devstack
# takes them. Nothing is downloaded from an image server.
make_guest_image() {
    local scratch
    scratch=$(mktemp -d "$WORK/guest-XXXXXX")
    PYTHONPATH=$TOP_DIR python3 - "$scratch" <<'END'
import pathlib
import shutil
import sys

from nova_vhpc_lab.testbed import image

guest = image.build_image()
target = pathlib.Path(sys.argv[1])
shutil.copy(guest.kernel, target / 'guest-vmlinuz')
shutil.copy(guest.initrd, target / 'guest-initrd')
END
    truncate -s 1M "$scratch/guest.img"
    tar -C "$scratch" -czf "$1" .
    rm -rf "$scratch"
}

# ensure_programs: install what builds the container and the guest, if it is missing.
ensure_programs() {
    local program
    for program in debootstrap slirp4netns git busybox cpio gcc zstd lz4 modprobe; do
        command -v "$program" >/dev/null || {
            apt_install debootstrap slirp4netns git busybox-static cpio gcc libc6-dev \
                zstd lz4 kmod
            return
        }
    done
}

# prepare ROOT: everything that stack.sh finds in the container.
prepare() {
    local root=$1
    mkdir -p "$root/srv/git"
    git clone -q --bare "file://$TOP_DIR" "$root/srv/git/openstack/nova-vhpc.git"
    case $GIT_BASE in
        file://*)
            "$TOP_DIR/tools/container/repositories.sh" "${GIT_BASE#file://}" \
                "$root/srv/git" "$BRANCH" "${REPOSITORIES[@]}"
            ;;
    esac
    make_guest_image "$root/srv/guest.tar.gz"
    chroot "$root" useradd -s /bin/bash -d /opt/stack -m stack
    chmod 755 "$root/opt/stack"
    echo 'stack ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/stack"
    chroot "$root" chown -R stack: /srv
    mkdir -p "$root/etc/systemd/system/ovsdb-server.service.d" \
        "$root/etc/systemd/system/iscsid.service.d" "$root/etc/systemd/system.conf.d"
    # devstack sets no datapath for OVN's bridge.
    cat >"$root/etc/systemd/system/ovsdb-server.service.d/container.conf" <<'END'
[Service]
ExecStartPost=/usr/bin/ovs-vsctl --no-wait set open_vswitch . external-ids:ovn-bridge-datapath-type=netdev
END
    # It needs NETLINK_ISCSI, and no volume is attached.
    cat >"$root/etc/systemd/system/iscsid.service.d/container.conf" <<'END'
[Service]
Type=simple
PIDFile=
ExecStartPre=
ExecStart=
ExecStart=/bin/sleep infinity
ExecStop=
END
    # For the haproxy of Neutron's metadata agents.
    printf '[Manager]\nDefaultLimitNOFILE=65536\n' >"$root/etc/systemd/system.conf.d/container.conf"
}

# copy_root SOURCE TARGET: a second host as the first one was before its first boot.
copy_root() {
    cp -a --reflink=auto "$1" "$2"
    tr -d - </proc/sys/kernel/random/uuid >"$2/etc/machine-id"
}

# step TITLE COMMAND...: run a step with its output in a log, and note how it went. A
# step that fails does not end the run: what comes after tells what is left behind.
step() {
    local title=$1 log started=$SECONDS
    shift
    log=$WORK/$(printf '%02d' "$((${#REPORT[@]} + 1))")-${title// /-}.log
    say "$title (log: $log)"
    # In the background, because a condition would switch errexit off in functions.
    "$@" >"$log" 2>&1 &
    if wait $!; then
        REPORT+=("passed  $(printf '%5d s  %s' "$((SECONDS - started))" "$title")")
        return 0
    fi
    REPORT+=("FAILED  $(printf '%5d s  %s' "$((SECONDS - started))" "$title")")
    FAILED=yes
    tail -n 25 "$log"
    return 1
}
REPORT=()
FAILED=

# as_stack HOST COMMAND: run a command in devstack's directory as its user.
as_stack() {
    run_in "$1" su -l stack -c "cd devstack && $2"
}

# gate HOST STEP...: run a step of the gate's job.
gate() {
    local host=$1
    shift
    run_in "$host" /opt/stack/nova-vhpc/devstack/gate.sh "$@"
}

# scenario: run the smoke test; of two hosts, each gets a member, as in .zuul.yaml.
scenario() {
    local policy=soft-affinity
    [ "${#HOSTS[@]}" = 1 ] || policy=anti-affinity
    run_in controller VHPC_SCENARIO_POLICY=$policy \
        /opt/stack/nova-vhpc/devstack/gate.sh scenario
}

# finish: end what runs, also after a signal, and print the report.
finish() {
    local status=$?
    trap - EXIT
    stop_containers
    if [ "${#REPORT[@]}" -gt 0 ]; then
        say "devstack $BRANCH, $NETWORKS, ${HOSTS[*]}:"
        printf '    %s\n' "${REPORT[@]}"
    fi
    if [ -n "$KEEP" ]; then
        echo "    kept: the roots ${HOSTS[*]} and the logs in $WORK"
    else
        rm -rf --one-file-system "${HOSTS[@]/#/${WORK:?}/}"
        # Logs of a run that failed stay.
        [ -n "$FAILED" ] || [ "$status" != 0 ] || rm -rf --one-file-system "${WORK:?}"
    fi
    exit "$status"
}

main() {
    local host
    parse "$@"
    [ "$(id -u)" = 0 ] || die "must run as root: it makes namespaces and mounts"
    [ -e /sys/fs/cgroup/cpu/tasks ] ||
        die "needs the hierarchies of cgroup v1 below /sys/fs/cgroup; in a virtual machine \
of your own, stack by doc/source/contributor/devstack.rst instead"
    [ -z "$(ls -A "$WORK" 2>/dev/null)" ] || [ -e "$WORK/.vhpc-devstack" ] ||
        die "--directory $WORK is not empty, and not of an earlier run"
    mkdir -p "$WORK"
    exec 7>"$WORK/.vhpc-devstack"
    flock -n 7 || die "--directory $WORK: another run uses it"
    rm -rf --one-file-system "${WORK:?}"/*
    ensure_python
    ensure_programs
    [ -z "$(git -C "$TOP_DIR" status --porcelain)" ] ||
        say "the plugin is commit $(git -C "$TOP_DIR" rev-parse --short HEAD); later changes are not in it"
    trap finish EXIT
    trap 'exit 130' INT TERM
    step "make the root" make_root "$WORK/controller" bookworm "$WORK/debootstrap.log"
    step "prepare" prepare "$WORK/controller"
    for host in "${HOSTS[@]:1}"; do
        step "copy the root" copy_root "$WORK/controller" "$WORK/$host"
    done
    for host in "${HOSTS[@]}"; do
        boot_container "$host" "$WORK/$host"
    done
    [ "${#HOSTS[@]}" = 1 ] || connect_containers "${HOSTS[@]}"
    for host in "${HOSTS[@]}"; do
        step "clone devstack $host" clone_devstack "$host"
    done
    run_all
    [ -z "$FAILED" ]
}

# clone_devstack HOST: as its guide says, with our local.conf.
clone_devstack() {
    local url
    url=$(git_base)/openstack/devstack
    case $url in
        file://*) url+=.git ;;
    esac
    run_in "$1" sudo -u stack git clone -q --branch "$BRANCH" "$url" /opt/stack/devstack
    local_conf "$1" >"$WORK/$1/srv/local.conf"
    run_in "$1" install -o stack -m 0644 /srv/local.conf /opt/stack/devstack/local.conf
}

# run_all: the job's steps. What makes no sense after a failed one is left out.
run_all() {
    local rounds=1 round host
    [ -z "$RESTACK" ] || rounds=2
    for round in $(seq "$rounds"); do
        if stack_hosts "$round"; then
            step "scenario $round" scenario || true
        fi
        for host in "${HOSTS[@]}"; do
            step "save logs $host $round" save_logs "$host" "$round" || true
        done
        # The controller last: the others take their uplinks out of its Placement.
        for host in $(printf '%s\n' "${HOSTS[@]}" | tac); do
            step "unstack $host $round" gate "$host" unstack || true
            step "clean $host $round" gate "$host" clean || true
            step "leftovers $host $round" gate "$host" leftovers || true
        done
    done
}

# stack_hosts ROUND: the controller first, then the others, which it must discover.
stack_hosts() {
    local host
    for host in "${HOSTS[@]}"; do
        step "stack $host $1" as_stack "$host" ./stack.sh || return 1
    done
    [ "${#HOSTS[@]}" = 1 ] ||
        step "discover hosts $1" as_stack controller tools/discover_hosts.sh
}

# save_logs HOST ROUND: copy what tells why a step failed; clean.sh removes it.
save_logs() {
    local target=/srv/logs-$2
    gate "$1" logs "$target"
    run_in "$1" journalctl -q -o short-precise -u 'devstack@*' >"$WORK/journal-$1-$2.log"
    cp -r "$WORK/$1$target" "$WORK/logs-$1-$2"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    main "$@"
fi
