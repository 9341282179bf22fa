#!/bin/sh
# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

# parallel LIBRARY MODE: start a program of one MPI or OpenMP library in a guest,
# as the library was shipped, or so that it naps while it waits.
ranks=$(grep -c ^processor /proc/cpuinfo)
nap=/lib/libvhpcwait-$1.so
mkdir -p /tmp /dev/shm
# Open MPI refuses the kernel's name for a host without one, "(none)".
echo guest > /proc/sys/kernel/hostname
export HOME=/tmp TMPDIR=/tmp
case $1-$2 in
mpich-*)
    set -- "$1" "$2" mpiexec.hydra -launcher fork -bind-to none -n "$ranks"
    [ "$2" = shipped ] || set -- "$@" -genv LD_PRELOAD "$nap"
    ;;
openmpi-*)
    set -- "$1" "$2" orterun --allow-run-as-root --bind-to none \
        --mca plm isolated --mca btl self,vader -n "$ranks"
    [ "$2" = shipped ] || set -- "$@" -x "LD_PRELOAD=$nap"
    ;;
openmp-napping) export OMP_WAIT_POLICY=passive ;;
esac
library=$1
mode=0
[ "$2" = shipped ] || mode=1
shift 2
exec "$@" "/bin/parallel-$library" "$mode"
