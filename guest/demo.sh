#!/bin/sh
# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh FOLDER [SECONDS]: run 1 and 3 programs of tests/barriers.c, a rank for each CPU,
# without and with the library in FOLDER; print their barriers per second together.
set -eu
folder=$1 seconds=${2:-3}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe HYDRA_BINDING=none

rate() {
    # $1 programs with LD_PRELOAD=$2. Only the ranks load the library.
    for _ in $(seq "$1"); do
        ${MPIRUN:-mpirun} -n "$(nproc)" env LD_PRELOAD="$2" \
            "$folder/barriers" "$seconds" 1000 &
    done | awk '{ sum += $1 } END { printf "%d", sum }'
}

for programs in 1 3; do
    echo "$programs x $(nproc) ranks, 1 ms of work between two barriers:" \
        "$(rate $programs "") barriers/s as shipped," \
        "$(rate $programs "$folder/libvhpcwait.so") with the library"
done
