#!/bin/sh
# Run Python in a network namespace of its own, with the /sys that belongs to it. tools/
# test.sh runs the workers of stestr so: their bridges, taps and ports are apart.
# shellcheck disable=SC2016
exec unshare --net --mount sh -ec '
    ip link set lo up
    cgroups=$(mktemp -d)
    mount --rbind /sys/fs/cgroup "$cgroups"
    mount -t sysfs sysfs /sys
    mount --rbind "$cgroups" /sys/fs/cgroup
    umount -l "$cgroups"
    rmdir "$cgroups"
    exec python "$@"
' python "$@"
