#!/bin/sh
# Run a program of the image. After an agent that did not end well, restore what it has
# left in servers, as ExecStopPost= of its systemd unit does: nothing else would, until
# the next one starts.
case "$1 $*" in
    nova-vhpc-agent*--restore* | nova-vhpc-agent*--withdraw*) exec "$@" ;;
    nova-vhpc-agent\ *) ;;
    *) exec "$@" ;;
esac
agent=
stopped=
trap 'stopped=1; [ -z "$agent" ] || kill -TERM "$agent"' TERM INT
trap '[ -z "$agent" ] || kill -HUP "$agent"' HUP
"$@" &
agent=$!
[ -z "$stopped" ] || kill -TERM "$agent"
while :; do
    status=0
    wait "$agent" || status=$?
    # A signal ends the wait, but not the agent.
    kill -0 "$agent" 2>/dev/null || break
done
[ "$status" = 0 ] || "$@" --restore
exit "$status"
