#!/bin/sh
# Enqueues one job: enqueue.sh URL PAYLOAD KEY. Prints the API's answer.
# Repeats with the same key while the API is not able to take it; needs curl.
set -eu
url=$1 payload=$2 key=$3
api=${HOOK_API_URL:-http://127.0.0.1:3300}
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

set -- --silent --max-time 30 --output "$answer" --write-out '%{http_code} %header{retry-after}' \
    --header 'content-type: application/json' --header "idempotency-key: $key"
[ -z "${HOOK_API_TOKEN:-}" ] || set -- "$@" --header "authorization: Bearer $HOOK_API_TOKEN"

for attempt in 1 2 3 4 5 6 7 8; do
    # The payload is put in as it is: these bytes are what the receiver gets.
    said=$(curl "$@" --data-binary "{\"url\": \"$url\", \"payload\": $payload}" "$api/v1/jobs") || said="000 "
    status=${said%% *} retry_after=${said#* }
    case $status in
        200 | 202) cat "$answer"; echo; exit 0 ;;
        000 | 429 | 503) sleep "${retry_after:-$attempt}" ;;
        *) cat "$answer" >&2; exit 1 ;;
    esac
done
echo "the API was not able to take the job" >&2
exit 1
