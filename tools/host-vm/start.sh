#!/bin/sh
# Run the checks of this boot; started by systemd in the machine.
set -eu
export PATH="/opt/nova-vhpc/bin:$PATH"
exec python -m nova_vhpc.tests.hostvm
