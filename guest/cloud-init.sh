#!/bin/sh
# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
#
# cloud-init.sh [openmpi|mpich]: print user data that build and install the library in
# a guest of Debian or Ubuntu. The sources are in it: a guest fetches only packages.
set -eu
mpi=${1:-openmpi}
case $mpi in openmpi | mpich) ;; *)
    echo "cloud-init.sh: MPI is '$mpi'; there are openmpi and mpich" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")"
cat <<END
#cloud-config
packages: [gcc, make, lib$mpi-dev]
write_files:
  - path: /usr/local/src/nova-vhpc-wait.tar.gz
    encoding: b64
    content: $(tar -cz --owner=0 --group=0 Makefile ./*.[ch] profile.sh | base64 -w 0)
runcmd:
  - [mkdir, -p, /usr/local/src/nova-vhpc-wait]
  - [tar, -xzf, /usr/local/src/nova-vhpc-wait.tar.gz, -C, /usr/local/src/nova-vhpc-wait]
  - [make, -C, /usr/local/src/nova-vhpc-wait, MPICC=mpicc.$mpi, install, profile]
END
