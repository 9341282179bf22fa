#!/usr/bin/env bash
# Send messages by the MPI libraries of another Debian or Ubuntu, with the files that
# vendordata hands out. Needs root and this clone's environment (tools/test.sh makes it).
# The system is bootstrapped before and removed afterwards.
#
#   tools/mpi.sh trixie
#
# What is left out does not work there, as doc/source/user/virtual-clusters.rst says.
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$TOP_DIR"

case ${1:-} in
trixie) tests=(OpenMpiTest DualStackOpenMpiTest MpichTest DualStackMpichTest) ;;
noble) tests=(OpenMpiTest DualStackOpenMpiTest Ipv6OpenMpiTest) ;;
*) die "usage: mpi.sh trixie|noble" ;;
esac
place=$(mktemp -d "${TMPDIR:-/tmp}/vhpc-mpi-XXXXXX")
trap 'rm -rf --one-file-system "$place"' EXIT
bootstrap "$1" "$place/root" openmpi-bin,mpich,python3,iproute2,hostname,mount
module=nova_vhpc.tests.functional.vendordata.test_mpi_libraries
VHPC_MPI_ROOT=$place/root PATH=$VENV/bin:$PATH PYTHONPATH=$TOP_DIR/lab \
    python -W ignore -m testtools.run "${tests[@]/#/$module.}"
