"""Enqueues one job: enqueue.py URL PAYLOAD KEY. Prints the API's answer."""

import json
import os
import sys
import time
import urllib.error
import urllib.request

API = os.environ.get("HOOK_API_URL", "http://127.0.0.1:3300")
TOKEN = os.environ.get("HOOK_API_TOKEN")
ATTEMPTS = 8


def enqueue(url, payload, key):
    """Stores the job and returns the answer; safe to call again with the same key."""
    # The payload is text already and goes in as it is: these bytes are what the receiver gets.
    body = '{"url": %s, "payload": %s}' % (json.dumps(url), payload)
    headers = {"content-type": "application/json", "idempotency-key": key}
    if TOKEN:
        headers["authorization"] = f"Bearer {TOKEN}"
    for attempt in range(1, ATTEMPTS + 1):
        request = urllib.request.Request(f"{API}/v1/jobs", body.encode(), headers)
        pause = attempt
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                raise SystemExit(f"{error.code}: {error.read().decode()}")
            pause = float(error.headers.get("retry-after") or attempt)
        except OSError:
            pass  # Nobody knows whether the job was stored; the key makes repeating safe.
        time.sleep(pause)
    raise SystemExit("the API was not able to take the job")


if __name__ == "__main__":
    print(json.dumps(enqueue(*sys.argv[1:4])))
