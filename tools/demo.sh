#!/usr/bin/env bash
# Run the main job of doc/source/quickstart.rst once, on real parts. Installs
# missing packages and leaves nothing running. The last line is "demo: OK".
set -euo pipefail

# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

[ $# = 0 ] || die "no arguments expected; with VHPC_DEMO_PAUSE=1 in the environment, the \
demo waits after the timeline, so that you can look around"
[ "$(id -u)" = 0 ] || die "run as root: the demo creates network namespaces and guests"
# shellcheck disable=SC2119 # our arguments are not meant for ensure_venv
ensure_venv
"$TOP_DIR/tools/ovn-root.sh"
export PATH="$VENV/bin:$PATH"
cd "$TOP_DIR"
exec "$VENV/bin/python" -m nova_vhpc.tests.stack.demo
