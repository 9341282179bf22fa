# Functions of tools/*.sh; to be sourced. They install everything that a fresh
# machine lacks, so that no tool depends on packages installed by hand.
# shellcheck shell=bash

TOP_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${VHPC_VENV:-$TOP_DIR/.venv}
CONSTRAINTS=${TOX_CONSTRAINTS_FILE:-$TOP_DIR/constraints.txt}
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() {
    printf '\n=== [%s] %s\n' "$(date +%H:%M:%S)" "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# apt_get LOG ARGUMENTS...: run apt-get, with its output in the file LOG, and
# retry for ten minutes while another process holds a lock, as the automatic
# upgrades of a fresh machine do. apt has an option to wait for dpkg's lock, but
# none for the locks of its lists and archives.
apt_get() {
    local log=$1 end held told=
    end=$((SECONDS + 600))
    shift
    until LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" >"$log" 2>&1 9<&-; do
        held=$(grep -m 1 'Could not get lock' "$log") || held=
        if [ -z "$held" ] || [ "$SECONDS" -ge "$end" ]; then
            tail -n 20 "$log" >&2
            return 1
        fi
        [ -n "$told" ] || say "waiting up to ten minutes: ${held#E: }"
        told=yes
        sleep 2
    done
}

# apt_install PACKAGES...: install packages without starting their services,
# because the tests start private ones on private ports. policy-rc.d prevents
# the start. Clones take turns: otherwise the first to finish would remove the
# file for the others. The lock is on the directory, so that no lock file stays.
apt_install() {
    local policy=${VHPC_POLICY:-/usr/sbin/policy-rc.d}
    [ "$(id -u)" = 0 ] || die "must run as root to install: $*"
    (
        flock -n 9 || {
            say "waiting for another clone that installs packages"
            flock 9
        }
        log=$(mktemp "${TMPDIR:-/tmp}/vhpc-apt-XXXXXX")
        trap 'rm -f "$log"' EXIT
        if [ ! -e "$policy" ]; then
            trap 'rm -f "$log" "$policy"' EXIT
            printf '#!/bin/sh\nexit 101\n' >"$policy"
            chmod 755 "$policy"
        fi
        apt_get "$log" update -qq ||
            die "apt-get update failed; is a package mirror configured?"
        apt_get "$log" install -y -qq --no-install-recommends "$@" ||
            die "apt-get install failed for: $*"
    ) 9<"${policy%/*}" || exit 1
}

# debian_mirror: print the address of a Debian mirror: $VHPC_DEBIAN_MIRROR, or else, on
# Debian, where apt has its packages from.
debian_mirror() {
    local found=${VHPC_DEBIAN_MIRROR:-}
    # shellcheck disable=SC2016
    # "Debian" is also the origin of the security updates, which have another address.
    [ -n "$found" ] || found=$(
        apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
            awk '/^Debian Debian / && !found++ { print $3 }'
    )
    echo "${found:-http://deb.debian.org/debian}"
}

ensure_python() {
    command -v apt-get >/dev/null || {
        command -v python3 >/dev/null ||
            die "python3 is missing, and there is no apt-get to install it"
        return
    }
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        apt_install python3 python3-venv python3-dev
    fi
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "python3 is older than 3.11; Debian 12 and Ubuntu 24.04 have it"
}

# bootstrap SUITE DIRECTORY PACKAGES: install a Debian or Ubuntu, with further packages, into
# a directory.
bootstrap() {
    local suite=$1 directory=$2 packages=$3 distribution mirror package pool=main keyring
    case $suite in
    bookworm | trixie)
        distribution=debian mirror=http://deb.debian.org/debian
        package=debian-archive-keyring
        ;;
    noble)
        distribution=ubuntu mirror=http://archive.ubuntu.com/ubuntu pool=main,universe
        package='ubuntu-keyring (Debian from 13: ubuntu-archive-keyring)'
        ;;
    *) die "no system '$suite'; there are: bookworm trixie noble" ;;
    esac
    keyring=/usr/share/keyrings/$distribution-archive-keyring.gpg
    [ -e "$keyring" ] || die "no $keyring, which verifies $distribution's packages; it is in \
the package $package; if this system has none, unpack its .deb with dpkg-deb -x"
    command -v mmdebstrap >/dev/null || apt_install mmdebstrap
    say "bootstrapping $suite"
    mmdebstrap --quiet --variant=apt --components="$pool" --keyring="$keyring" \
        --include="$packages" "$suite" "$directory" "$mirror" ||
        die "mmdebstrap $suite failed (above)"
}

# make_venv: create an empty virtual environment if there is none.
make_venv() {
    # tox and virtualenv write a file there that points editors to theirs.
    if [ -f "$VENV" ]; then
        rm -f "$VENV"
    fi
    if [ -x "$VENV/bin/python" ] && [ -x "$VENV/bin/pip" ]; then
        return
    fi
    # Start afresh: an interrupted creation may have left an incomplete pip, and
    # a removed Python leaves packages that were built for it.
    local clear=()
    if [ -e "$VENV/pyvenv.cfg" ]; then
        clear=(--clear)
    fi
    python3 -m venv "$VENV" "${clear[@]}" || die "python3 -m venv $VENV failed"
}

# extras: print the extras of pyproject.toml, separated by commas.
extras() {
    python3 - "$TOP_DIR/pyproject.toml" <<'PY'
import sys
import tomllib

with open(sys.argv[1], 'rb') as file:
    print(','.join(tomllib.load(file)['project']['optional-dependencies']))
PY
}

# ensure_venv [REQUIREMENTS-FILES...]: create the virtual environment that runs
# and tests nova-vhpc, with all of its extras and the packages of further files;
# create it again if one of its inputs has changed.
# shellcheck disable=SC2120 # tools that source this give arguments
ensure_venv() {
    local file stamp want requirements=()
    ensure_python
    for file in test-requirements.txt "$@"; do
        requirements+=(-r "$TOP_DIR/$file")
    done
    stamp=$VENV/.vhpc-stamp
    want=$(cd "$TOP_DIR" && cat "$CONSTRAINTS" ./*requirements.txt \
        doc/requirements.txt pyproject.toml lab/pyproject.toml bindep.txt | sha256sum)"$*"
    # An environment with more packages than wanted is sufficient.
    if [[ -x $VENV/bin/python && -e $stamp && $(cat "$stamp") == "$want"* ]]; then
        return
    fi
    make_venv
    "$VENV/bin/pip" install -q -c "$CONSTRAINTS" bindep ||
        die "pip install failed; is a package index reachable?"
    ensure_os_packages
    say "installing the Python packages into $VENV"
    # Without git, as in a tarball, pbr needs to be given a version.
    if ! git -C "$TOP_DIR" rev-parse -q --verify HEAD >/dev/null 2>&1 &&
        [ ! -e "$TOP_DIR/PKG-INFO" ]; then
        export PBR_VERSION=${PBR_VERSION:-0.0.0}
    fi
    (cd "$TOP_DIR" && "$VENV/bin/pip" install -q -c "$CONSTRAINTS" \
        "${requirements[@]}" -e ".[$(extras)]" -e lab) ||
        die "pip install failed (above)"
    printf '%s' "$want" >"$stamp"
}

# The older release of OpenStack that is supported, and its virtual environment.
OLDER=2026.1
OLDER_VENV=$TOP_DIR/.venv-$OLDER

# ensure_older_venv: as ensure_venv, with the packages of the older release. In a subshell,
# which it may exit.
ensure_older_venv() {
    # shellcheck disable=SC2119 # our arguments are not meant for it
    (VENV=$OLDER_VENV CONSTRAINTS=$TOP_DIR/constraints-$OLDER.txt ensure_venv)
}

# ensure_os_packages: install the packages of bindep.txt that are missing. Needs
# $VENV/bin/bindep.
ensure_os_packages() {
    local missing
    missing=$(cd "$TOP_DIR" && "$VENV/bin/bindep" -b -f bindep.txt test | tr '\n' ' ') || true
    if [ -n "${missing// /}" ]; then
        say "installing OS packages: $missing"
        # shellcheck disable=SC2086
        apt_install $missing
    fi
}
