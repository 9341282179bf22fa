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
    if [ "$ok" = 0 ] || { [ "$status" != 0 ] && [ "$bad" = 0 ]; }; then
        bad=$((bad + 1))
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

# Real guests on a noisy machine starve at times: what failed is run once
# more, alone, and named. What fails twice has failed.
functional() {
    local status=0 first
    [ "$(id -u)" = 0 ] || die "functional tests start libvirtd and make bridges: run as root"
    export OS_TEST_PATH=./nova_vhpc/tests/functional
    stestr run --concurrency "${VHPC_FUNCTIONAL_CONCURRENCY:-1}" || status=$?
    if [ "$status" != 0 ]; then
        read -r first _ _ < <(python tools/stestr_count.py) || first=0
        say "functional: once more, alone: $(stestr failing --list 2>/dev/null | tr '\n' ' ')"
        status=0
        stestr run --failing --concurrency 1 || status=$?
        passed=$((passed + first))
    fi
    count functional "$status"
}

ensure_venv lint-requirements.txt doc/requirements.txt
export PATH=$VENV/bin:$PATH
for step in $STEPS; do
    case $step in
    lint | docs | package | unit | functional) ;;
    *) die "no step '$step'; there are: lint docs package unit functional" ;;
    esac
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
