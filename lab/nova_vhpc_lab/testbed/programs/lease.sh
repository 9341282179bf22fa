#!/bin/sh
# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

# Called by udhcpc with an event; the variables hold the lease.
# shellcheck disable=SC2154
case $1 in
    bound | renew)
        ip addr flush dev "$interface"
        ip addr add "$ip/$mask" dev "$interface"
        [ -z "$mtu" ] || ip link set "$interface" mtu "$mtu"
        [ "$1" = renew ] || echo "vhpc: address $ip by DHCP"
        ;;
esac
