// Enqueues one job: enqueue.mjs URL PAYLOAD KEY. Prints the API's answer.
import { setTimeout as pause } from "node:timers/promises";

const api = process.env.HOOK_API_URL ?? "http://127.0.0.1:3300";
const token = process.env.HOOK_API_TOKEN;
const ATTEMPTS = 8;

// Stores the job and returns the answer; safe to call again with the same key.
async function enqueue(url, payload, key) {
  const headers = { "content-type": "application/json", "idempotency-key": key };
  if (token) headers.authorization = `Bearer ${token}`;
  // The payload is text already and goes in as it is: these bytes are what the receiver gets.
  const body = `{"url": ${JSON.stringify(url)}, "payload": ${payload}}`;
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    let seconds = attempt;
    try {
      const signal = AbortSignal.timeout(30_000);
      const answer = await fetch(`${api}/v1/jobs`, { method: "POST", headers, body, signal });
      if (answer.ok) return await answer.json();
      if (answer.status !== 429 && answer.status !== 503) {
        throw Object.assign(new Error(`${answer.status}: ${await answer.text()}`), { final: true });
      }
      seconds = Number(answer.headers.get("retry-after") ?? attempt);
    } catch (error) {
      // Without an answer nobody knows whether the job was stored; the key makes repeating safe.
      if (error.final) throw error;
    }
    await pause(seconds * 1000);
  }
  throw new Error("the API was not able to take the job");
}

console.log(JSON.stringify(await enqueue(...process.argv.slice(2, 5))));
