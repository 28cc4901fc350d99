"""Receives webhooks: receive.py PORT, with the signing secret in WEBHOOK_SECRET."""

import base64
import hashlib
import hmac
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
TOLERANCE_S = 300

# In a real receiver: a table with a unique key, written in the transaction that does the work.
done = set()


def is_genuine(headers, body):
    """Whether one of the signatures is ours, over these bytes, and not old."""
    message_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if not message_id or not (timestamp or "").isdigit():
        return False
    if abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest())
    given = [text.partition(",") for text in (headers["webhook-signature"] or "").split()]
    return any(
        version == "v1" and hmac.compare_digest(expected, signature.encode())
        for version, _, signature in given
    )


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if not is_genuine(self.headers, body):
            return self.answer(401)
        message_id = self.headers["webhook-id"]
        repeated = message_id in done
        done.add(message_id)
        print("repeated" if repeated else "received", message_id, flush=True)
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
print("listening on", server.server_port, flush=True)
server.serve_forever()
