#!/bin/sh
# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


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
