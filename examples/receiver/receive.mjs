// Receives webhooks: receive.mjs PORT, with the signing secret in WEBHOOK_SECRET.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const secret = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");
const TOLERANCE_S = 300;
const BODY_MAX = 2 * 1024 * 1024;

// In a real receiver: a table with a unique key, written in the transaction that does the work.
const done = new Set();

// Whether one of the signatures is ours, over these bytes, and not old.
function isGenuine(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": given } = headers;
  if (!id || !given || !/^\d+$/.test(timestamp ?? "")) return false;
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > TOLERANCE_S) return false;
  const signed = createHmac("sha256", secret).update(`${id}.${timestamp}.`).update(body);
  const expected = Buffer.from(`v1,${signed.digest("base64")}`);
  return given.split(" ").some((text) => {
    const one = Buffer.from(text);
    return one.length === expected.length && timingSafeEqual(one, expected);
  });
}

const server = createServer(async (request, response) => {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size > BODY_MAX) return response.writeHead(413).end();
    parts.push(part);
  }
  if (!isGenuine(request.headers, Buffer.concat(parts))) return response.writeHead(401).end();
  const id = request.headers["webhook-id"];
  console.log(done.has(id) ? "repeated" : "received", id);
  done.add(id);
  response.writeHead(204).end();
});
server.listen(Number(process.argv[2]), "127.0.0.1", () => {
  console.log("listening on", server.address().port);
});
