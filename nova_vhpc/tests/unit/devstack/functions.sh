#!/usr/bin/env bash
# Stand-ins for devstack's functions: what changes a system is recorded in
# $RECORD, what edits files edits them (below $SANDBOX only).

record() {
    printf '%s\n' "$*" >>"$RECORD"
}

ini() {
    "$PYTHON" "$HARNESS_DIR/ini.py" "$@"
}

iniset() {
    ini set "$@"
}

iniget() {
    ini get "$@"
}

inidelete() {
    ini delete "$@"
}

iniget_multiline() {
    ini get "$@"
}

iniset_multiline() {
    ini set "$@"
}

echo_summary() {
    record echo_summary "$@"
}

is_ubuntu() {
    [ "${DISTRO_IS_UBUNTU:-yes}" = yes ]
}

is_service_enabled() {
    if [ "$1" = neutron ]; then
        [[ " $ENABLED_SERVICES" == *" q-"* ]]
        return
    fi
    [[ " $ENABLED_SERVICES " == *" $1 "* ]]
}

# As in devstack's lib/keystone.
configure_keystoneauth() {
    iniset "$1" "$3" auth_type password
    iniset "$1" "$3" interface public
    iniset "$1" "$3" auth_url "$KEYSTONE_SERVICE_URI"
    iniset "$1" "$3" username "$2"
    iniset "$1" "$3" password "$SERVICE_PASSWORD"
    iniset "$1" "$3" user_domain_name "$SERVICE_DOMAIN_NAME"
    iniset "$1" "$3" project_name "$SERVICE_PROJECT_NAME"
    iniset "$1" "$3" project_domain_name "$SERVICE_DOMAIN_NAME"
}

configure_keystone_authtoken_middleware() {
    configure_keystoneauth "$1" "$2" keystone_authtoken
    iniset "$1" keystone_authtoken www_authenticate_uri "$KEYSTONE_SERVICE_URI"
}

define_plugin() {
    record define_plugin "$@"
}

# As devstack's own: trueorfalse DEFAULT NAME
trueorfalse() {
    local value=${!2:-}
    case "${value,,}" in
    1 | yes | true) echo True ;;
    0 | no | false) echo False ;;
    *) echo "$1" ;;
    esac
}

enable_service() {
    ENABLED_SERVICES="${ENABLED_SERVICES:-} $1"
}

get_python_exec_prefix() {
    echo "$SANDBOX/bin"
}

# The commands that reach outside of the sandbox are recorded, and answer as
# the test wants: MISSING lists what "show" is to say does not exist.
sudo() {
    case $1 in
    install)
        record sudo "$@"
        shift
        # Who runs the tests need not be root, who alone may give files away.
        local arguments=()
        while [ $# -gt 0 ]; do
            if [ "$1" = -o ]; then
                shift
            else
                arguments+=("$1")
            fi
            shift
        done
        install "${arguments[@]}"
        ;;
    rm | rmdir | sed) "$@" ;;
    *)
        record sudo "$@"
        [[ "$1" != */"${FAILING:-none}" ]]
        ;;
    esac
}

openstack() {
    record openstack "$@"
    if [[ "$*" == *" -c hosts "* ]]; then
        echo "${AGGREGATE_HOSTS:-[]}"
    fi
    [[ "$1 $2" != *" show" ]] || [[ " ${MISSING:-} " != *" $3 "* ]]
}

ip() {
    [[ " ${MISSING:-} " != *" $3 "* ]]
}

hostname() {
    echo devstack-host
}

for name in install_package setup_develop run_process stop_process \
    pip_uninstall restart_service iniset_rpc_backend; do
    eval "$name() { record $name \"\$@\"; }"
done

# What stack.sh has in the background when post-config runs. Until it is
# waited for it may replace the file by what it read from it at first.
finish_neutron_nova() {
    if [ -n "${NEUTRON_WRITES:-}" ]; then
        printf '%s\n[neutron]\nregion_name = RegionOne\n' "$NEUTRON_READ" >"$NOVA_CONF"
        NEUTRON_WRITES=
    fi
}
NEUTRON_READ=$(cat "$NOVA_CONF")
trap finish_neutron_nova EXIT

async_wait() {
    record async_wait "$@"
    if [ "$1" = configure_neutron_nova ]; then
        finish_neutron_nova
    fi
}

# Our own programs, where devstack would have installed them.
mkdir -p "$SANDBOX/bin"
for name in nova-vhpc-flavor nova-vhpc-agent; do
    printf '#!/bin/sh\necho %s "$@" >>"%s"\n' "$name" "$RECORD" >"$SANDBOX/bin/$name"
    chmod +x "$SANDBOX/bin/$name"
done
