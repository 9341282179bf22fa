#!/usr/bin/env bash
# Run the demo's job in the middle of an upgrade: the last of two hosts has the
# nova-compute and the agent of another release. Takes up to ten minutes for each
# run, and is no step of tools/test.sh. The last line of a run is "skew: OK".
#
#   tools/skew.sh                   Nova 34 with a host of 33, then the reverse
#   tools/skew.sh older             the first of these two
#   tools/skew.sh newer             the second; its host has the agent from the
#                                   environment of 34, but nova-compute 33,
#                                   because Nova 33 serves no nova-compute 34
#   tools/skew.sh agent REVISION    one host with the agent of another revision of
#                                   this repository, which must know uplinks of OVN
set -euo pipefail

# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

# run CONTROL-VENV ARGUMENTS...: run once, with the control plane of an environment.
run() {
    local venv=$1
    shift
    PATH=$venv/bin:$PATH "$venv/bin/python" -m nova_vhpc_lab.stack.skew "$@"
}

# agent_of REVISION: run with the agent of that revision.
agent_of() {
    local tree revision=$1
    tree=$(mktemp -d)
    # shellcheck disable=SC2064 # the name is known now only
    trap "rm -rf '$tree'" EXIT
    mkdir "$tree/source"
    git -C "$TOP_DIR" archive "$revision" | tar -x -C "$tree/source"
    # With its own entry points, which name its own modules.
    PBR_VERSION=0.0.0 "$VENV/bin/pip" install -q --no-deps \
        --target "$tree/nova-vhpc" "$tree/source" || die "pip install failed (above)"
    run "$VENV" "$VENV/bin" --tree "$tree/nova-vhpc"
}

case "$#:$*" in
"0:" | "1:older" | "1:newer") ;;
"2:agent "*)
    git -C "$TOP_DIR" rev-parse -q --verify "$2^{commit}" >/dev/null ||
        die "no revision '$2' in this clone"
    ;;
*) die "no '$*'; there are: older, newer, agent REVISION" ;;
esac
[ "$(id -u)" = 0 ] || die "run as root: it creates network namespaces and guests"
# shellcheck disable=SC2119 # our arguments are not meant for ensure_venv
ensure_venv
"$TOP_DIR/tools/ovn-root.sh"
cd "$TOP_DIR"
if [ "${1:-}" = agent ]; then
    agent_of "$2"
    exit
fi
ensure_older_venv
[ "${1:-older}" != older ] || run "$VENV" "$OLDER_VENV/bin"
[ "${1:-newer}" != newer ] || run "$OLDER_VENV" "$VENV/bin" --agent-only
