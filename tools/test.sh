#!/usr/bin/env bash
# Run all checks. Works from a fresh clone on a fresh machine with Debian or Ubuntu, as
# root.
#
#   tools/test.sh                     all steps
#   tools/test.sh lint docs           some of them: lint docs package unit lab older
#                                     soak functional guests
#   tools/test.sh unit agent.journal.test_store
#                                     one module, class or test of unit, lab, functional
#                                     or guests, in seconds
#   tools/test.sh --nightly-list      what tools/nightly.sh runs only
#
# guests (real libvirt, QEMU, Open vSwitch, RabbitMQ) mostly wait, so they run beside two
# lanes of the other steps, in four workers, each in a network namespace of its own. Those
# guests' tests that measure time come last, alone. tools/tests.count holds how many tests
# a step has: fewer are a failure. VHPC_LONG=1 runs all with the long settings of
# tools/nightly.sh.
#
# The last line is "N passed, N failed".
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$TOP_DIR"

ALL='lint docs package unit lab older soak functional guests'
export OS_NOVA_DISABLE_EVENTLET_PATCHING=true
export PYTHONDONTWRITEBYTECODE=1
# Sphinx fails if the locale of the login is not installed.
export LC_ALL=C.UTF-8
# Tests that have a home of their own find the image of the guests and the compiled
# simulator nevertheless.
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}
# stestr does not quote a path with blanks. The virtual environment is first in
# PATH, so a name without a path will do.
export PYTHON=python
TIMES=${VHPC_CACHE:-/var/cache/nova-vhpc}/times
# Whole clouds, whose hosts are network namespaces of their own, and Slurm, which asks the
# machine's name server for its name.
CLOUDS='functional\.(stack|vendordata\.test_slurm)\.'
# With Nova and Placement in process: one CPU each, no guest.
IN_PROCESS='functional\.(scheduler|explain|cli|clusters|deploy)\.'
# Guests that measure time, and so want the machine for themselves.
ALONE='functional\.(agent\.test_(wakeup|probes)|phase_exchange\.test_(scale|flood))\.'
LAB_ALONE='bench\.test_(agent|clock_error|cluster_sets|default_policy|network)\.'
NIGHTLY='\.test_nightly_'
[ -n "${VHPC_LONG:-}" ] && NIGHTLY='^$'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

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

# run_tests NAME PACKAGE WORKERS SELECTION...: run tests of a package, and those functional
# ones that failed again, alone, at most twice, with those that a worker which died left
# out: real guests on a busy machine get too little CPU time at times. Repeats are counted
# and printed. stestr deals the tests out by the times of an earlier run, which are kept
# outside of the clone. 0 workers: as many as CPUs.
run_tests() {
    local name=$1 package=$2 workers=$3 status=0 ok=0 bad=0 skipped=0 again regex
    local passed=0 top=. repository=.stestr.d/$1 all=/dev/null
    shift 3
    [[ $package != lab/* ]] || top=lab
    rm -rf "$repository"
    mkdir -p "$repository"
    if [ -e "$TIMES/$name" ]; then
        stestr -u "$repository" init
        cp "$TIMES/$name"/times.dbm* "$repository/.stestr"
    fi
    stestr -u "$repository" -t "./$package" --top-dir "./$top" run \
        --concurrency "$workers" "$@" || status=$?
    if [ "$status" != 0 ] && [[ $package = *functional ]]; then
        all=$work/all-$name
        stestr -u "$repository" -t "./$package" --top-dir "./$top" list "$@" >"$all"
    fi
    for again in once twice; do
        [ "$status" != 0 ] && [[ $package = *functional ]] || break
        read -r ok _ _ < <(python tools/stestr_last.py counts "$repository") || break
        regex=$(python tools/stestr_last.py failed "$repository" "$all")
        all=/dev/null
        [ -n "$regex" ] || break
        passed=$((passed + ok))
        say "$name: repeating $(grep -o '\^' <<<"$regex" | wc -l) ($again): $regex"
        echo "$name: $regex" >>"$work/repeated"
        status=0
        stestr -u "$repository" -t "./$package" --top-dir "./$top" run \
            --concurrency 1 "$regex" || status=$?
    done
    read -r ok bad skipped < <(python tools/stestr_last.py counts "$repository") ||
        bad=1
    if [ "$skipped" != 0 ]; then
        echo "$name: $skipped skipped tests count as failed"
        bad=$((bad + skipped))
    fi
    passed=$((passed + ok))
    if [ "$bad" = 0 ] && { [ "$passed" = 0 ] || [ "$status" != 0 ]; }; then
        bad=1
    fi
    echo "$name $passed $bad" >>"$work/counts"
    if [ "$bad" = 0 ]; then
        mkdir -p "$TIMES/$name"
        cp "$repository"/.stestr/times.dbm* "$TIMES/$name" || true
        enough "$name" "$passed" || return 1
    fi
    [ "$bad" = 0 ]
}

# enough NAME NUMBER: whether so many tests are as many as a step has.
enough() {
    local least
    least=$(awk -v name="$1" '$1 == name { print $2 }' tools/tests.count)
    if [ "$2" -lt "${least:-1}" ]; then
        echo "$1: $2 tests ran, tools/tests.count says ${least:-1}"
        echo "$1-count 0 1" >>"$work/counts"
        return 1
    fi
}

unit() {
    run_tests unit nova_vhpc/tests/unit 0
}

lab() {
    # Otherwise each worker would compile the simulator.
    python -c 'from nova_vhpc_lab.sim import host, programs
one = host.Host(1, seed=1)
one.add_vm(programs.Run(), 1)
one.advance(1000)'
    run_tests lab lab/nova_vhpc_lab/tests/unit 0
}

# The same work on every machine: about three minutes on one CPU.
soak() {
    tools/soak.sh --seed 1 --inputs 3000 --hosts 4 --requests 2000 \
        --schedules 30 --rounds 3 --clouds 1 2>&1 | tee "$work/soak"
}

functional() {
    tools/container-root.sh || return 1
    run_tests functional nova_vhpc/tests/functional 2 \
        --exclude-regex "$NIGHTLY" "$IN_PROCESS"
}

guests() {
    local status=0 clouds
    tools/ovn-root.sh || return 1
    # Network namespaces do not reach Debian's mirror.
    python -c 'from nova_vhpc_lab.testbed import image; image.build_image()' || return 1
    {
        run_tests clouds nova_vhpc/tests/functional 1 \
            --exclude-regex "$NIGHTLY" "$CLOUDS" || status=1
        run_tests lab-guests lab/nova_vhpc_lab/tests/functional 1 \
            --exclude-regex "$LAB_ALONE" || status=1
        [ "$status" = 0 ]
    } >"$work/clouds" 2>&1 &
    clouds=$!
    PYTHON=tools/netns-python.sh run_tests guests nova_vhpc/tests/functional 4 \
        --exclude-regex "$IN_PROCESS|$CLOUDS|$ALONE|$NIGHTLY" || status=1
    wait "$clouds" || status=1
    cat "$work/clouds"
    return "$status"
}

# The rest of guests, when nothing else runs.
guests_alone() {
    local status=0
    run_tests guests-alone nova_vhpc/tests/functional 1 \
        --exclude-regex "$IN_PROCESS|$NIGHTLY" "$ALONE" || status=1
    run_tests lab-guests-alone lab/nova_vhpc_lab/tests/functional 1 \
        "$LAB_ALONE" || status=1
    return "$status"
}

# The older release: what may differ with Nova and its libraries. control, planner, top,
# linux and the repository's own tests do not touch them.
older() {
    local status=0
    local same='unit\.(control|scheduler\.planner|top|linux|doc|plugins|tools|devstack|deploy|conf\.test_sample)\.'
    local boots='functional\.(scheduler\.test_multi_create|cli\.test_flavor\.Boot|phase_exchange\.test_gone)'
    if [ -n "${VHPC_LONG:-}" ]; then
        same='unit\.(conf\.test_sample|doc|plugins|tools)\.'
        boots='functional\.(explain|cli|scheduler\.test_multi_create|phase_exchange\.test_gone)'
    fi
    ensure_older_venv || return 1
    export PATH=$OLDER_VENV/bin:$PATH
    run_tests older-unit nova_vhpc/tests/unit 0 --exclude-regex "$same" || status=1
    run_tests older-functional nova_vhpc/tests/functional 2 "$boots" ||
        status=1
    return "$status"
}

# step NAME: run a step in a subshell, and note how it ended.
step() {
    local started=$SECONDS result=ok
    say "$1"
    ("$1") || result=FAILED
    echo "$1: $result, $((SECONDS - started)) s" | tee -a "$work/steps"
}

# lane NICE STEPS...: run those of some steps that are wanted, one after the other.
lane() {
    local word
    renice -n "$1" "$BASHPID" >/dev/null
    for word in "${steps[@]}"; do
        [[ " $* " != *" $word "* ]] || step "$word"
    done
}

# one STEP NAME: run one module, class or test.
one() {
    local package=nova_vhpc.tests.unit name=${2%.py}
    case $1 in
    lab) package=nova_vhpc_lab.tests.unit ;;
    functional | guests) package=nova_vhpc.tests.functional ;;
    esac
    name=${name//\//.}
    name=${name#lab.}
    exec python -m testtools.run "$package.${name#"$package".}"
}

steps=()
# shellcheck disable=SC2086
[ $# != 0 ] || set -- $ALL
for word; do
    case $word in
    unit | lab | older) ;;
    lint | docs | package)
        [ -e .git ] ||
            die "$word needs a clone with its history; from a tarball, run \
tools/test.sh unit lab older functional"
        ;;
    soak | functional | guests)
        [ "$(id -u)" = 0 ] ||
            die "run as root: $word starts libvirtd and creates bridges"
        ;;
    --nightly-list)
        sed -n '/^What runs nightly only/,/^Mutations/p' doc/source/contributor/testing.rst
        exit
        ;;
    *)
        if [[ ${#steps[@]} = 1 && $word = *[./]* && \
            ${steps[0]} =~ ^(unit|lab|functional|guests)$ ]]; then
            ensure_venv
            export PATH=$VENV/bin:$PATH
            one "${steps[0]}" "$word"
        fi
        die "no step '$word'; there are: $ALL"
        ;;
    esac
    steps+=("$word")
done
ensure_venv lint-requirements.txt doc/requirements.txt
export PATH=$VENV/bin:$PATH
touch "$work/counts" "$work/steps"

# Guests must not starve beside the other lanes. package and older write to the clone's
# metadata, so they are in one lane.
(lane 0 guests) >"$work/guests" 2>&1 &
(lane 5 lint docs package older) >"$work/lint" 2>&1 &
(lane 5 unit lab soak functional)
wait
cat "$work/lint" "$work/guests"
[[ " ${steps[*]} " != *' guests '* ]] || step guests_alone
say "took $SECONDS s"
if grep -q '^soak: FAILED' "$work/steps"; then
    # What it found would otherwise be far above the output of the later tests.
    tail -n 100 "$work/soak"
fi
cat "$work/steps"
[ ! -e "$work/repeated" ] || sed 's/^/repeated: /' "$work/repeated"
awk '{ print $1 ": " $2 " passed, " $3 " failed" }' "$work/counts"
broken=$(grep -c ': FAILED' "$work/steps") || true
read -r passed failed < <(awk '{ ok += $2; bad += $3 } END { print ok + 0, bad + 0 }' "$work/counts")
[ "$broken" = 0 ] || [ "$failed" != 0 ] || failed=$broken
echo "$passed passed, $failed failed"
[ "$broken" = 0 ]
