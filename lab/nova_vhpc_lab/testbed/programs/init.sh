#!/bin/sh
# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

# First process of a guest: load modules, set up the network, run the workload.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
value() {
    for word in $(cat /proc/cmdline); do
        case $word in
            "vhpc.$1="*) echo "${word#*=}" ;;
        esac
    done
}
if [ "$(value modules)" != none ]; then
    while read -r module; do
        insmod "/modules/$module.ko"
    done < /modules/order
fi
ip link set lo up
net=$(value net)
rank=$(value rank)
offset=$(value net_offset)
for nic in /sys/class/net/eth*; do
    [ -e "$nic" ] || continue
    nic=${nic##*/}
    # The workload uses the first NIC; all others are set up without address.
    if [ "$nic" = eth0 ] && [ "$net" = dhcp ]; then
        # In the background: the workload need not wait. By its option -b,
        # udhcpc would report nothing once it was in the background.
        udhcpc -i eth0 -s /bin/dhcp-lease -q -A 3 &
    elif [ "$nic" = eth0 ]; then
        ip addr add "${net:-10.77.0}.$((${offset:-0} + ${rank:-0} + 2))/24" dev eth0
    fi
    ip link set "$nic" up
done
if [ "$(value shell)" = console ]; then
    # Run what is typed, so that a test can have the guest send packets.
    while read -r line; do
        eval "$line"
    done < /dev/console &
fi
echo 'vhpc: up'
exec /bin/vhpc-workload
