#!/bin/sh
# Watches the disks of this machine: an alert for each that is nearly full, resolved when there is room again.
#
#   API=http://127.0.0.1:8765/api/v1 ./disk_watch.sh          every minute, until Ctrl-C
#   API=http://127.0.0.1:8765/api/v1 ./disk_watch.sh --once   a single look
set -eu

API=${API:-http://127.0.0.1:8765/api/v1}
PAGE=$(printf %s "${PAGE:-main}" | sed "s|/|%2F|g") # as a URL needs it
LIMIT=${LIMIT:-90}             # percent
DISKS=${DISKS:-df -P -x tmpfs} # prints what is used as `df -P` does

# call METHOD PATH BODY: says on stderr what is wrong with a request, and fails; the next look tries again.
call() {
  answer=$(curl -sS --fail-with-body --retry 3 --max-time 20 -X "$1" "$API/pages/$PAGE$2" \
    -H 'Content-Type: application/json' -d "$3") || { echo "$answer (in $1 $2)" >&2; return 1; }
}

alert() { # MOUNT PERCENT
  # The same dedupe key while the alert is open: each further look counts it again, and it lives for another hour.
  call POST /observations "{\"type\": \"risk_alert\", \"content\": \"Disk $1 is $2% full\", \"source\": \"disk-watch\",
    \"tags\": [\"disk\"], \"dedupe_key\": \"disk:$1\", \"metadata\": {\"mount\": \"$1\"}, \"ttl\": \"1h\"}" || return 0
  echo "alert: $1 is $2% full"
}

resolve() { # MOUNT: the open alert about it, if there is one
  # Spaces and the like in a mount are for curl to encode.
  id=$(curl -sS --get "$API/pages/$PAGE/observations" -d tag=disk -d status=active -d limit=1 \
    --data-urlencode "metadata={\"mount\": \"$1\"}" | sed -n 's/.*"items":\[{"id":"\([0-9A-Z]*\)".*/\1/p')
  [ -z "$id" ] && return
  call POST "/observations/$id/resolve" '{"reason": "there is room again"}' || return 0
  echo "resolved: $1"
}

look() {
  $DISKS | while read -r _ _ _ _ used mount; do
    case $used in
      *%) if [ "${used%\%}" -ge "$LIMIT" ]; then alert "$mount" "${used%\%}"; else resolve "$mount"; fi ;;
    esac
  done
}

look
[ "${1:-}" = --once ] && exit
while sleep 60; do look; done
