#!/usr/bin/env bash
# What a gate job does on a node that stack.sh has stacked with the plugin. The
# playbooks of .zuul.yaml and tools/devstack.sh call it; it may be called by hand.
#
#   devstack/gate.sh scenario         run the smoke test (on the controller)
#   devstack/gate.sh logs DIRECTORY   save the configuration, without secrets, and the
#                                     agent's last status
#   devstack/gate.sh unstack          run unstack.sh; nothing of ours may run after it
#   devstack/gate.sh clean            run clean.sh
#   devstack/gate.sh leftovers        print what is left on this node
#
# As root. The exit status is not 0 if a step fails, or if something is left behind.
set -euo pipefail

DEST=${DEST:-/opt/stack}
STACK_USER=${STACK_USER:-stack}
CONF_DIR=${VHPC_CONF_DIR:-/etc/nova-vhpc}
HOOKS=${VHPC_LIBVIRT_HOOKS:-/etc/libvirt/hooks}
VENV=${DEVSTACK_VENV:-${DATA_DIR:-$DEST/data}/venv}
TOP=$(cd "$(dirname "$0")/.." && pwd)

# in_devstack SCRIPT: run a script of devstack as its user.
in_devstack() {
    (cd "$DEST/devstack" && sudo -H -u "$STACK_USER" "./$1")
}

# interpreter: print the Python that our programs are installed for: that of devstack's
# environment, or where it makes none (CentOS Stream, Rocky Linux), the system's. The
# PATH of sudo need not have /usr/local/bin.
interpreter() {
    local program
    program=$(PATH=$VENV/bin:$PATH:/usr/local/bin command -v nova-vhpc-status) || {
        echo "nova-vhpc is not installed: neither in $VENV (DEVSTACK_VENV) nor in PATH" >&2
        return 1
    }
    sed -n '1s/^#!//p' "$program"
}

scenario() {
    local python
    python=$(interpreter)
    set -a
    # The plugin's test-config phase wrote what this devstack has.
    # shellcheck disable=SC1091
    . "$CONF_DIR/scenario.env"
    set +a
    export OS_CLOUD=devstack-admin OS_CLIENT_CONFIG_FILE=/etc/openstack/clouds.yaml CI=true
    cd "$TOP"
    exec "$python" -m unittest discover --verbose -s nova_vhpc/tests/scenario -t .
}

logs() {
    local conf python
    mkdir -p "$1"
    for conf in "$CONF_DIR"/*.conf; do
        [ ! -f "$conf" ] || sed -E \
            's/^([^=#]*(password|secret|token|key|transport_url|connection)[^=]*=).*/\1 REMOVED/I' \
            "$conf" >"$1/${conf##*/}"
    done
    if python=$(interpreter); then
        "$python" -m nova_vhpc.cli.top --once --json >"$1/nova-vhpc-top.json" || true
    fi
}

# running: print what of nova-vhpc runs or is plugged in on this node.
running() {
    systemctl list-units --plain --no-legend 'devstack@vhpc-*' | sed 's/ .*//; s/^/unit: /'
    pgrep -af '[n]ova-vhpc-(agent|vendordata)' | sed 's/^/process: /' || true
    ip -brief link | sed -nE 's/^((br-)?vhpc[^ ]*).*/link: \1/p'
}

# left: print the files and settings with our name, and libvirt's hooks. The clones
# of our repository, which devstack keeps, caches and logs are none.
left() {
    local ours
    ours=$(find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path "$TOP" \
        -o -path "$DEST/nova-vhpc" -o -path /srv -o -path /tmp -o -path /var/log \
        -o -path /var/cache -o -name .cache -o -path /home \) -prune \
        -o -name '*vhpc*' -print)
    ours+=$'\n'$(find /run -name '*vhpc*')
    sed -n 's/^./file: &/p' <<<"$ours"
    if [ -d "$HOOKS" ]; then
        find "$HOOKS" -mindepth 1 | sed 's/^/hook: /'
    fi
    # devstack makes the completion of the openstack command once, with our plugin.
    grep -rIlsi vhpc /etc --exclude=osc.bash_completion | sed 's/^/setting in: /' || true
}

# nothing_of COMMAND: print its output, and fail if there is any.
nothing_of() {
    local found
    found=$("$1")
    [ -z "$found" ] || {
        printf '%s\n' "$found" | sed 's/^/left behind: /'
        return 1
    }
}

case ${1:-} in
    scenario) scenario ;;
    logs) logs "${2:?logs needs a directory}" ;;
    unstack)
        in_devstack unstack.sh
        nothing_of running
        ;;
    clean) in_devstack clean.sh ;;
    leftovers)
        status=0
        nothing_of running || status=1
        nothing_of left || status=1
        [ "$status" != 0 ] || echo "nothing of nova-vhpc is left"
        exit "$status"
        ;;
    *)
        sed -n '/^#   /s/^# \{0,3\}//p' "$0" >&2
        exit 2
        ;;
esac
