#!/usr/bin/env bash
# Mount what systemd expects, change into the container's root and become its
# systemd. The first process of the namespaces that boot.sh makes.
#
#   tools/container/init.sh ROOT NAME
set -euo pipefail

ROOT=$1
NAME=$2

hostname "$NAME"
# With what was mounted below it.
mount --rbind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount -t sysfs sysfs "$ROOT/sys"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/sys/fs/cgroup"
for controller in cpu cpuacct cpuset memory devices freezer blkio pids; do
    mkdir "$ROOT/sys/fs/cgroup/$controller"
    mount -t cgroup -o "$controller" cgroup "$ROOT/sys/fs/cgroup/$controller"
done
mkdir "$ROOT/sys/fs/cgroup/systemd" "$ROOT/sys/fs/cgroup/unified"
mount -t cgroup -o none,name=systemd cgroup "$ROOT/sys/fs/cgroup/systemd"
mount -t cgroup2 cgroup2 "$ROOT/sys/fs/cgroup/unified"
# The kernel's settings are the machine's own; only the network's are the container's.
mount --bind "$ROOT/proc/sys" "$ROOT/proc/sys"
mount --bind "$ROOT/proc/sys/net" "$ROOT/proc/sys/net"
mount -o remount,bind,ro "$ROOT/proc/sys"

mount -t tmpfs -o mode=755 dev "$ROOT/dev"
while read -r device major minor; do
    mknod -m 666 "$ROOT/dev/$device" c "$major" "$minor"
done <<'END'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
END
mkdir "$ROOT/dev/net" "$ROOT/dev/pts" "$ROOT/dev/shm" "$ROOT/dev/mqueue" "$ROOT/dev/hugepages"
mknod -m 666 "$ROOT/dev/net/tun" c 10 200
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$ROOT/dev/pts"
ln -s pts/ptmx "$ROOT/dev/ptmx"
ln -s /proc/self/fd "$ROOT/dev/fd"
ln -s /proc/self/fd/0 "$ROOT/dev/stdin"
ln -s /proc/self/fd/1 "$ROOT/dev/stdout"
ln -s /proc/self/fd/2 "$ROOT/dev/stderr"
touch "$ROOT/dev/console"
mount -t tmpfs tmpfs "$ROOT/dev/shm"
mount -t tmpfs -o mode=755 run "$ROOT/run"
ip link set lo up

cd "$ROOT"
mkdir -p oldroot
pivot_root . oldroot
# A shared tree, or systemd cannot pass credentials to services.
exec chroot . /bin/sh -c 'umount -l /oldroot
mount --make-rshared /
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --bounding-set=-sys_time,-sys_module,-mac_admin,-mac_override,-syslog,-wake_alarm \
    /lib/systemd/systemd --log-target=console --show-status=yes \
    >/var/log/console.log 2>&1 </dev/null'
