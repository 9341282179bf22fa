#!/usr/bin/env bash
# Run what takes too long for each change, as root, some six hours: all of tools/test.sh
# with the long settings, half an hour of tools/soak.sh, an hour of an agent on a busy
# bus, unit tests with other random cases, mutations, an upgrade halfway, MPI libraries of
# other systems, an emulated machine, and all of tools/test.sh on another system with
# nothing of this machine's caches.
#
#   tools/nightly.sh
#
# The last line is "N passed, N failed"; a command without such a line counts as one.
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$TOP_DIR"
[ "$(id -u)" = 0 ] || die "run as root"
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# night COMMAND...: run a command and add its count.
night() {
    local status=0 line ok=0 bad=0
    say "$*"
    "$@" 2>&1 | tee "$log" || status=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1) || true
    if [ -n "$line" ]; then
        read -r ok _ bad _ <<<"$line"
    elif [ "$status" = 0 ]; then
        ok=1
    fi
    [ "$status" = 0 ] || [ "$bad" != 0 ] || bad=1
    echo "$*: $ok passed, $bad failed"
    passed=$((passed + ok))
    failed=$((failed + bad))
}

night env VHPC_LONG=1 tools/test.sh
night tools/soak.sh --minutes 30
night tools/soak.sh --minutes "${VHPC_NIGHT_MINUTES:-60}" night
night env HYPOTHESIS_PROFILE=random tools/test.sh unit
night tools/mutations.sh
night tools/skew.sh
night tools/mpi.sh trixie
night tools/mpi.sh noble
night tools/host-vm.sh debian12
rm -rf "${VHPC_CACHE:-/var/cache/nova-vhpc}"
night tools/elsewhere.sh trixie tools/test.sh
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
