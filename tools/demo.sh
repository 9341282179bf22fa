#!/usr/bin/env bash
# Run the main job of doc/source/quickstart.rst once, on real parts. Installs
# missing packages and leaves nothing running. The last line is "demo: OK".
#
#   tools/demo.sh        the main job
#   tools/demo.sh shell  boot its servers, and run a shell in which "openstack"
#                        knows the cloud; its end removes everything
set -euo pipefail

# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

case "$*" in
"" | shell) ;;
*) die "no '$*'; there are: tools/demo.sh, tools/demo.sh shell" ;;
esac
[ "$(id -u)" = 0 ] || die "run as root: the demo creates network namespaces and guests"
# shellcheck disable=SC2119 # our arguments are not meant for ensure_venv
ensure_venv
if [ "$*" = shell ] && [ ! -x "$VENV/bin/openstack" ]; then
    say "installing the openstack client into $VENV"
    "$VENV/bin/pip" install -q -c "$CONSTRAINTS" python-openstackclient ||
        die "pip install failed (above)"
fi
"$TOP_DIR/tools/ovn-root.sh"
export PATH="$VENV/bin:$PATH"
cd "$TOP_DIR"
exec "$VENV/bin/python" -m nova_vhpc_lab.stack.demo "$@"
