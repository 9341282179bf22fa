#!/bin/sh
# Install the unit and a configuration as doc/source/install says, with the wheel in
# place.
set -eu

export PATH="/opt/nova-vhpc/bin:$PATH"
bin=$(dirname "$(readlink -f "$(command -v nova-vhpc-agent)")")
sed "s|/usr/bin/nova-vhpc|$bin/nova-vhpc|" "$bin/../etc/nova-vhpc/nova-vhpc-agent.service" \
    >/etc/systemd/system/nova-vhpc-agent.service
install -d -m 0755 /etc/nova-vhpc
touch /etc/nova-vhpc/nova-vhpc.conf
chmod 0640 /etc/nova-vhpc/nova-vhpc.conf

# An emulated CPU is some twenty times slower than what the unit's limits are for.
install -d /etc/systemd/system/nova-vhpc-agent.service.d
cat >/etc/systemd/system/nova-vhpc-agent.service.d/emulated.conf <<'EOF'
[Service]
TimeoutStartSec=900
TimeoutStopSec=900
WatchdogSec=180
CPUQuota=
EOF
systemctl daemon-reload
systemctl enable nova-vhpc-agent
