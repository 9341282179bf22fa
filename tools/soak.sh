#!/usr/bin/env bash
# Attack parsers, publication, scheduler, and the agent beside real guests, for as
# long as you like; nightly, as root.
#
#   tools/soak.sh                          all parts, 30 minutes in all
#   tools/soak.sh --minutes 2 domain trace some parts
#   tools/soak.sh --hosts 50 publication   as much work, however long it takes
#   tools/soak.sh --rounds 100 chaos      as many rounds, of the agent beside guests
#   tools/soak.sh --minutes 480 night      an agent on a busy bus: does it grow?
#   tools/soak.sh --seed 7                 the same inputs again
#
# Prints its seed, and for each fault how to repeat it. Exit status 1 if
# there is a fault.
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$TOP_DIR"
export OS_NOVA_DISABLE_EVENTLET_PATCHING=true
export PYTHONDONTWRITEBYTECODE=1
ensure_venv
exec "$VENV/bin/python" -m nova_vhpc_lab.soak "$@"
