# shellcheck shell=sh
# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
#
# For /etc/profile.d: let programs wait well, unless their user says otherwise.
if [ -z "${LD_PRELOAD:-}" ] && [ -e @LIBRARY@ ]; then
    export LD_PRELOAD=@LIBRARY@
fi
export VHPC_WAIT="${VHPC_WAIT:-auto}"
if [ -z "${OMP_WAIT_POLICY:-}" ]; then
    export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-10000}" KMP_BLOCKTIME="${KMP_BLOCKTIME:-0}"
fi
