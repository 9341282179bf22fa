#!/usr/bin/env bash
#
# devstack plugin of nova-vhpc. Each phase does its part in a function of
# devstack/lib/vhpc; all of them may run again without harm.

XTRACE_VHPC=$(set +o | grep xtrace)
set +o xtrace

source "$VHPC_DIR/devstack/lib/vhpc"

case "$1 $2" in
    "stack pre-install")
        echo_summary "nova-vhpc: installing OS packages"
        install_vhpc_packages
        ;;
    "stack install")
        echo_summary "nova-vhpc: installing"
        install_vhpc
        ;;
    "stack post-config")
        echo_summary "nova-vhpc: configuring"
        configure_vhpc_scheduler
        configure_vhpc_placement
        make_vhpc_conf
        configure_vhpc_agent
        configure_vhpc_vendordata
        configure_vhpc_hook
        ;;
    "stack extra")
        echo_summary "nova-vhpc: starting"
        create_vhpc_bridges
        start_vhpc
        create_vhpc_flavor
        ;;
    "stack test-config")
        create_vhpc_aggregate
        configure_vhpc_scenario
        ;;
    "unstack "*)
        stop_vhpc
        ;;
    "clean "*)
        cleanup_vhpc
        ;;
esac

$XTRACE_VHPC
