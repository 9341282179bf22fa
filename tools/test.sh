#!/usr/bin/env bash
# Run all checks: lint, docs, package, unit tests, two minutes of tools/soak.sh,
# functional tests, and the unit tests and some of the functional ones once more
# with the packages of the older release of OpenStack that is supported. Works
# from a fresh clone on a fresh machine with Debian or Ubuntu, as root.
#
#   tools/test.sh            all steps
#   tools/test.sh lint docs  some of them: lint docs package unit older soak
#                            functional
#
# The last line is "N passed, N failed".
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$TOP_DIR"

STEPS=${*:-lint docs package unit older soak functional}
export OS_NOVA_DISABLE_EVENTLET_PATCHING=true
export PYTHONDONTWRITEBYTECODE=1
# Sphinx fails if the locale of the login is not installed.
export LC_ALL=C.UTF-8
# stestr does not quote a path with blanks. The virtual environment is first in
# PATH, so a name without a path will do.
export PYTHON=python
passed=0
failed=0
broken=()
soak_log=$(mktemp)
trap 'rm -f "$soak_log"' EXIT

lint() {
    pre-commit run --all-files --show-diff-on-failure --color never
}

docs() {
    rm -rf doc/build releasenotes/build
    sphinx-build -q -W --keep-going -b html -j auto doc/source doc/build/html &&
        sphinx-build -q -W --keep-going -b man doc/source doc/build/man &&
        sphinx-build -q -W --keep-going -b html releasenotes/source \
            releasenotes/build/html
}

package() {
    tools/check-package.sh
}

# count NAME STATUS: add the results of stestr's last run to the totals.
count() {
    local name=$1 status=$2 line ok bad skipped
    line=$(python tools/stestr_last.py counts) || line="0 1 0"
    read -r ok bad skipped <<<"$line"
    if [ "$skipped" != 0 ]; then
        echo "$name: $skipped skipped tests count as failed"
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

# The same work on every machine: about three minutes on one CPU.
soak() {
    tools/soak.sh --seed 1 --inputs 3000 --hosts 6 --requests 4000 \
        --schedules 30 --rounds 6 --clouds 1 2>&1 | tee "$soak_log"
}

# run_part NAME STESTR-OPTIONS...: run tests, and those that failed again, alone,
# at most twice. Real guests on a busy machine get too little CPU time at times.
run_part() {
    local name=$1 status=0 again regex ok
    shift
    stestr run "$@" || status=$?
    for again in once twice; do
        [ "$status" != 0 ] || break
        read -r ok _ _ < <(python tools/stestr_last.py counts) || break
        regex=$(python tools/stestr_last.py failed)
        [ -n "$regex" ] || break
        passed=$((passed + ok))
        say "$name: running again ($again): $regex"
        status=0
        stestr run --concurrency 1 "$regex" || status=$?
    done
    count "$name" "$status"
}

# Tests with Nova and Placement in process, and those of the installation, need one
# CPU each; those with guests need all CPUs.
functional() {
    local status=0
    local one_cpu='functional\.(scheduler|explain|flavor|clusters|osc|deploy)'
    export OS_TEST_PATH=./nova_vhpc/tests/functional
    tools/ovn-root.sh || status=1
    tools/container-root.sh || status=1
    run_part "functional (one CPU)" --concurrency 2 "$one_cpu" || status=1
    run_part "functional (guests)" --concurrency 1 --exclude-regex "$one_cpu" || status=1
    return "$status"
}

# The older release: the unit tests, but for those of the repository itself, those
# functional tests in process that boot clusters by Nova's API, and one of the message
# bus that its amqp would fail.
older() {
    local status=0 failures=0 bin=$OLDER_VENV/bin
    ensure_older_venv || return 1
    export OS_TEST_PATH=./nova_vhpc/tests/unit
    PATH=$bin:$PATH stestr run \
        --exclude-regex 'unit\.(conf\.test_sample|doc|plugins|tools)\.' || status=$?
    count "older (unit)" "$status" || failures=1
    export OS_TEST_PATH=./nova_vhpc/tests/functional
    PATH=$bin:$PATH run_part "older (functional)" --concurrency 2 \
        'functional\.(explain|flavor|osc|scheduler\.test_multi_create|phase_exchange\.test_gone)' ||
        failures=1
    return "$failures"
}

for step in $STEPS; do
    case $step in
    unit | older) ;;
    lint | docs | package)
        [ -e .git ] ||
            die "$step needs a clone with its history; from a tarball, run \
tools/test.sh unit older functional"
        ;;
    soak | functional)
        [ "$(id -u)" = 0 ] ||
            die "run as root: $step tests start libvirtd and create bridges"
        ;;
    *) die "no step '$step'; there are: lint docs package unit older soak functional" ;;
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
say "took $SECONDS s"
if [ ${#broken[@]} != 0 ]; then
    # What it found would otherwise be far above the output of the later tests.
    [[ " ${broken[*]} " != *" soak "* ]] || tail -n 100 "$soak_log"
    echo "failed steps: ${broken[*]}"
    [ "$failed" != 0 ] || failed=${#broken[@]}
fi
echo "$passed passed, $failed failed"
[ ${#broken[@]} = 0 ]
