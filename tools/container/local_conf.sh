# devstack's local.conf for the host of tools/devstack.sh, which sources this after
# container/lib.sh, and whose arguments NETWORKS and GIT_BASE are.
# shellcheck shell=bash

SERVICES=n-cpu,placement-client,key,mysql,rabbit,placement-api,g-api,n-api,n-api-meta
SERVICES+=,n-cond,n-sch,q-svc,openstack-cli-server

# services: print what runs.
services() {
    case $NETWORKS in
        ovn) echo "$SERVICES,ovn-northd,ovn-controller,ovs-vswitchd,ovsdb-server,q-ovn-agent" ;;
        ovs) echo "$SERVICES,q-agt,q-dhcp,q-l3,q-meta" ;;
    esac
}

# git_base: print GIT_BASE as it is in the containers.
git_base() {
    case $GIT_BASE in
        file://*) echo file:///srv/git ;;
        *) echo "$GIT_BASE" ;;
    esac
}

# local_conf: print devstack's local.conf.
local_conf() {
    cat <<END
[[local|localrc]]
ADMIN_PASSWORD=secret
DATABASE_PASSWORD=secret
RABBIT_PASSWORD=secret
SERVICE_PASSWORD=secret
HOST_IP=$CONTAINER_ADDRESS
SERVICE_HOST=$CONTAINER_ADDRESS
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
ENABLED_SERVICES=$(services)
END
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
