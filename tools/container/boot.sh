#!/usr/bin/env bash
# Boot systemd in a directory with an operating system, as pid 1 of pid, mount,
# uts, ipc, net and cgroup namespaces of its own. For tools/devstack.sh; runs until
# the container ends, and whatever runs in it ends with this process.
#
#   tools/container/boot.sh ROOT NAME
#
# Container managers need a cgroup layout or a kernel that test machines lack; this
# needs cgroup v1 hierarchies, each of which the container gets a group of.
set -euo pipefail

ROOT=$1
NAME=$2
# Of this process only: another run has containers of the same name.
GROUP=$NAME-$$

# own_group HIERARCHY: print the cgroup of this process in a hierarchy.
own_group() {
    local controller=$1
    case $controller in
        unified) sed -n 's/^0:://p' /proc/self/cgroup ;;
        systemd) sed -n 's/^[0-9]*:name=systemd://p' /proc/self/cgroup ;;
        *) sed -n "s/^[0-9]*:$controller://p" /proc/self/cgroup ;;
    esac
}

for controller in cpu cpuacct cpuset memory devices freezer blkio pids systemd unified; do
    group=$(own_group "$controller")
    directory=/sys/fs/cgroup/$controller${group%/}/$GROUP
    mkdir -p "$directory"
    if [ "$controller" = cpuset ]; then
        # A new cpuset is empty and takes no process.
        cat "${directory%/*}/cpuset.cpus" >"$directory/cpuset.cpus"
        cat "${directory%/*}/cpuset.mems" >"$directory/cpuset.mems"
    fi
    if [ "$controller" = cpu ]; then
        # Otherwise all processes of the container together weigh as one outside of it.
        echo "$((1024 * $(nproc)))" >"$directory/cpu.shares"
    fi
    echo $$ >"$directory/cgroup.procs"
done
exec unshare --pid --fork --kill-child --mount --propagation private --uts --ipc \
    --net --cgroup "$(dirname "$0")/init.sh" "$ROOT" "$NAME"
