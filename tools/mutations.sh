#!/usr/bin/env bash
# Change single operators and constants of a package, 25 drawn by a seed, and see whether
# its unit tests notice (Cosmic Ray). Works on a copy of what is committed.
#
#   tools/mutations.sh                              the packages below, SEED 1
#   tools/mutations.sh --seed 7 control/gang ...    others, below nova_vhpc
#
# The last line is "N passed, N failed": packages of which at least 22 were caught.
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$TOP_DIR"
seed=1
if [ "${1:-}" = --seed ]; then
    seed=$2
    shift 2
fi
[ $# != 0 ] || set -- control scheduler/planner scheduler/session agent/restore agent/uplinks
ensure_venv
export PATH=$VENV/bin:$PATH OS_NOVA_DISABLE_EVENTLET_PATCHING=true PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q "$TOP_DIR" "$work/copy"
# Beside the environment of the tests, whose versions are pinned.
pip install -q -c "$CONSTRAINTS" --target "$work/tools" 'cosmic-ray>=8.7,<9' ||
    die "pip install of cosmic-ray failed"
cd "$work/copy"
export PYTHONPATH=$work/copy:$work/copy/lab:$work/tools
passed=0
failed=0
for package; do
    say "$package"
    session=$work/${package//\//-}.sqlite
    cat >"$work/config.toml" <<TOML
[cosmic-ray]
module-path = "nova_vhpc/$package"
timeout = 600.0
excluded-modules = []
test-command = "python -m unittest discover -f -s nova_vhpc/tests/unit/$package -t ."
[cosmic-ray.distributor]
name = "local"
TOML
    "$work/tools/bin/cosmic-ray" init "$work/config.toml" "$session"
    python -m nova_vhpc_lab.mutations draw --seed "$seed" "$session"
    "$work/tools/bin/cosmic-ray" exec "$work/config.toml" "$session"
    git checkout -q .
    if python -m nova_vhpc_lab.mutations count "$session"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
