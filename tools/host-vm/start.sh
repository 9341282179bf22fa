#!/bin/sh
# Run the checks of this boot; started by systemd in the machine. They have their own
# copy of the code, because what the role has installed goes with its removal. pip must
# not find that copy, so it is no PYTHONPATH.
set -eu
export HOME=/root LC_ALL=C.UTF-8
# Guests that never sleep leave the CPUs to the checks, which would take twice as long.
systemctl set-property --runtime machine.slice CPUWeight=1
cd /var/lib/hostvm/lib
exec python3 -m nova_vhpc_lab.hostvm
