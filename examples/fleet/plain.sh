#!/bin/sh
# The whole fleet on one machine, without containers: three workers, two receivers behind nginx, and the clock.
# It wants PAYMENTS_JOURNAL (the DSN of a database), PAYMENTS_BASE_URL, PAYMENTS_APP_KEY, PAYMENTS_APP_PASSWORD and
# PAYMENTS_USER_ID; certificate.pem and key.pem lie in the current folder. Ctrl-C or SIGTERM ends all, workers last.
# On many machines each line below is a service of its own; README.md has them as units of systemd.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
port=${PORT:-8443} first=${FIRST_PORT:-8080} sender=${SENDER:-}
second=$((first + 1))

payments-async fleet worker --new-journal --health "${HEALTH_PORT:-8090}" &
workers=$!
payments-async fleet worker --new-journal &
workers="$workers $!"
payments-async fleet worker --new-journal &
workers="$workers $!"
mkdir -p reports
until payments-async outbox status >/dev/null 2>&1 || [ $? -ne 2 ]; do sleep 1; done # until there is a journal

for one in "$first" "$second"; do
    payments-async ipn serve --port "$one" --trusted-proxy 127.0.0.1 --owner "receiver-$one" --json \
        ${sender:+--sender "$sender"} &
    others="${others:-} $!"
done
payments-async fleet schedule --reconcile '*/30 * * * *' --report "${REPORT_AT:-0 4 * * *}" --reports reports &
others="$others $!"
sed -e "s/receiver-1:8080/127.0.0.1:$first/; s/receiver-2:8080/127.0.0.1:$second/; s/listen 8443/listen 127.0.0.1:$port/" \
    "$here/nginx.conf" >nginx.conf
nginx -p . -c nginx.conf -e stderr &
others="$others $!"

# shellcheck disable=SC2086 # a list of numbers
trap 'kill $others 2>/dev/null || true; kill $workers 2>/dev/null || true' INT TERM
echo "the fleet is up; Ctrl-C stops"
# a signal interrupts the first wait; the second one is for what is finished then
wait || true
wait
