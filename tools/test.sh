#!/usr/bin/env bash
# Everything that must hold, from a fresh clone on a fresh machine (root,
# Debian or Ubuntu): lint, docs, package, unit and functional tests.
#
#   tools/test.sh            all
#   tools/test.sh lint docs  only these steps: lint docs package unit functional
#
# The last line is the test runner's count: "N passed, N failed".
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$TOP_DIR"

STEPS=${*:-lint docs package unit functional}
export OS_NOVA_DISABLE_EVENTLET_PATCHING=true
export PYTHONDONTWRITEBYTECODE=1
# Sphinx ends where the locale of whoever is logged in is not installed.
export LC_ALL=C.UTF-8
# stestr quotes no path with blanks; the environment's is first in PATH.
export PYTHON=python
passed=0
failed=0
broken=()

lint() {
    pre-commit run --all-files --show-diff-on-failure --color never
}

docs() {
    rm -rf doc/build releasenotes/build
    sphinx-build -q -W --keep-going -b html -j auto doc/source doc/build/html &&
        sphinx-build -q -W --keep-going -b html releasenotes/source \
            releasenotes/build/html
}

package() {
    tools/check-package.sh
}

# count NAME STATUS: adds what stestr's last run says to the totals.
count() {
    local name=$1 status=$2 line ok bad skipped
    line=$(python tools/stestr_count.py) || line="0 1 0"
    read -r ok bad skipped <<<"$line"
    if [ "$skipped" != 0 ]; then
        echo "$name: $skipped skipped: a check that cannot run is a failure"
        bad=$((bad + skipped))
    fi
    if [ "$bad" = 0 ] && { [ "$ok" = 0 ] || [ "$status" != 0 ]; }; then
        bad=1
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
    [ "$bad" = 0 ]
}

unit() {
    local status=0
    export OS_TEST_PATH=./nova_vhpc/tests/unit
    stestr run || status=$?
    count unit "$status"
}

# run_part NAME STESTR-OPTIONS...: real parts on a noisy machine starve at
# times: what failed is run again, alone, at most twice, and named.
run_part() {
    local name=$1 status=0 again ok
    shift
    stestr run "$@" || status=$?
    for again in once twice; do
        [ "$status" != 0 ] || break
        read -r ok _ _ < <(python tools/stestr_count.py) || break
        passed=$((passed + ok))
        say "$name: $again more, alone: $(stestr failing --list 2>/dev/null | tr '\n' ' ')"
        status=0
        stestr run --failing --concurrency 1 || status=$?
    done
    count "$name" "$status"
}

# Nova and Placement in process use one CPU each; guests want all there are.
functional() {
    local in_process='functional\.(scheduler|explain|flavor|clusters)' status=0
    export OS_TEST_PATH=./nova_vhpc/tests/functional
    run_part "functional (in process)" --concurrency 2 "$in_process" || status=1
    run_part "functional (guests)" --concurrency 1 --exclude-regex "$in_process" || status=1
    return "$status"
}

for step in $STEPS; do
    case $step in
    unit) ;;
    lint | docs | package)
        [ -e .git ] ||
            die "$step needs the clone with its history, which a tarball has not; \
there tools/test.sh unit functional"
        ;;
    functional)
        [ "$(id -u)" = 0 ] ||
            die "functional tests start libvirtd and make bridges: run as root"
        ;;
    *) die "no step '$step'; there are: lint docs package unit functional" ;;
    esac
done
ensure_venv lint-requirements.txt doc/requirements.txt
export PATH=$VENV/bin:$PATH
for step in $STEPS; do
    say "$step"
    started=$SECONDS
    if "$step"; then
        echo "$step: ok, $((SECONDS - started)) s"
    else
        echo "$step: FAILED, $((SECONDS - started)) s"
        broken+=("$step")
    fi
done
say "took $SECONDS s in all"
if [ ${#broken[@]} != 0 ]; then
    echo "failed steps: ${broken[*]}"
    [ "$failed" != 0 ] || failed=${#broken[@]}
fi
echo "$passed passed, $failed failed"
[ ${#broken[@]} = 0 ]
