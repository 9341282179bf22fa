# devstack's local.conf for the hosts of tools/devstack.sh, which sources this after
# container/lib.sh, and whose arguments HOSTS, NETWORKS and GIT_BASE are.
# shellcheck shell=bash

CONTROLLER_SERVICES=key,mysql,rabbit,placement-api,g-api,n-api,n-api-meta,n-cond,n-sch
CONTROLLER_SERVICES+=,q-svc,openstack-cli-server
COMPUTE_SERVICES=n-cpu,placement-client

# address_of HOST: print the address at which the other hosts reach it.
address_of() {
    if [ "${#HOSTS[@]}" = 1 ]; then
        echo "$CONTAINER_ADDRESS"
    elif [ "$1" = controller ]; then
        echo "${CABLE_ADDRESSES[0]}"
    else
        echo "${CABLE_ADDRESSES[1]}"
    fi
}

# services_of HOST: print what it runs.
services_of() {
    local services=$COMPUTE_SERVICES
    [ "$1" != controller ] || services+=,$CONTROLLER_SERVICES
    case $NETWORKS-$1 in
        ovn-controller)
            services+=,ovn-northd,ovn-controller,ovs-vswitchd,ovsdb-server,q-ovn-agent
            ;;
        ovn-*) services+=,ovn-controller,ovs-vswitchd,ovsdb-server,q-ovn-agent ;;
        ovs-controller) services+=,q-agt,q-dhcp,q-l3,q-meta ;;
        ovs-*) services+=,q-agt ;;
    esac
    echo "$services"
}

# git_base: print GIT_BASE as it is in the containers.
git_base() {
    case $GIT_BASE in
        file://*) echo file:///srv/git ;;
        *) echo "$GIT_BASE" ;;
    esac
}

# local_conf HOST: print devstack's local.conf of a host.
local_conf() {
    local controller
    controller=$(address_of controller)
    cat <<END
[[local|localrc]]
ADMIN_PASSWORD=secret
DATABASE_PASSWORD=secret
RABBIT_PASSWORD=secret
SERVICE_PASSWORD=secret
HOST_IP=$(address_of "$1")
SERVICE_HOST=$controller
GIT_BASE=$(git_base)
LOGFILE=/opt/stack/logs/stack.sh.log
LOG_COLOR=False
VERBOSE=True
API_WORKERS=1
# In seconds; a busy machine starts a service in more than devstack's 60.
SERVICE_TIMEOUT=600
# The kernel's settings are the machine's.
ENABLE_KSM=False
ENABLE_KSMTUNED=False
DOWNLOAD_DEFAULT_IMAGES=False
IMAGE_URLS=file:///srv/guest.tar.gz
DEFAULT_IMAGE_NAME=guest
LIBVIRT_TYPE=qemu
# The kernel need not have Open vSwitch's module.
OVS_DATAPATH_TYPE=netdev
FIXED_RANGE=10.0.0.0/24
IPV4_ADDRS_SAFE_TO_USE=10.0.0.0/22
IP_VERSION=4
ENABLED_SERVICES=$(services_of "$1")
END
    if [ "$1" != controller ]; then
        cat <<END
DATABASE_TYPE=mysql
MYSQL_HOST=$controller
RABBIT_HOST=$controller
END
    fi
    if [ "$NETWORKS" = ovs ]; then
        cat <<END
Q_AGENT=openvswitch
Q_ML2_PLUGIN_MECHANISM_DRIVERS=openvswitch
Q_ML2_TENANT_NETWORK_TYPE=vxlan
END
    fi
    cat <<END
enable_plugin nova-vhpc file:///srv/git/openstack/nova-vhpc.git HEAD
# As in .zuul.yaml.
VHPC_CREATE_BRIDGES=True
VHPC_CREATE_FLAVOR=True
VHPC_CREATE_AGGREGATE=True
VHPC_PEERS=True
END
}
