#!/usr/bin/env bash
# The whole job of nova-vhpc once, on real parts; see
# doc/source/quickstart.rst. Installs what is missing, leaves nothing
# running. The last line is "demo: OK".
set -euo pipefail

# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

[ $# = 0 ] || die "it takes no arguments; with VHPC_DEMO_PAUSE=1 in the environment it waits \
after the timeline, to look around in"
[ "$(id -u)" = 0 ] || die "run it as root: it makes bridges and guests"
# shellcheck disable=SC2119 # it is to take no arguments of ours
ensure_venv
export PATH="$VENV/bin:$PATH"
cd "$TOP_DIR"
exec "$VENV/bin/python" -m nova_vhpc.tests.stack.demo
