// The operations page. It asks the public routes and shows what they answer. Whatever comes from
// outside, names of targets and answers of receivers above all, is set as text and never as HTML.
"use strict";

const REFRESH_MS = 3000;
const RATE_WINDOW_MS = 60000;
const REPLAY_LOOK_MS = 500;
const HOUR_MS = 3600000;
const SPARK_HOURS = 24;
const $ = (id) => document.getElementById(id);
const main = $("main");
const state = { screen: "targets", argument: "", order: "", body: false, samples: [] };

// ---- making elements -------------------------------------------------------------------------

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null).map((child) =>
    child instanceof Node ? child : document.createTextNode(String(child))));
  return element;
}

// A table; each column is [heading, class, cell of a row].
function table(caption, columns, rows) {
  if (rows.length === 0) return h("p", { class: "quiet" }, "Nothing to show.");
  return h("table", { "aria-label": caption },
    h("thead", null, h("tr", null, columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
    h("tbody", null, rows.map((row) => h("tr", null, columns.map(([name, kind, cell]) =>
      h("td", { class: kind, "data-label": name }, cell(row)))))));
}

function button(text, key, action, kind) {
  return h("button", { type: "button", class: kind || null, "data-key": key, onclick: action }, text);
}

function jobLink(id) {
  return h("a", { href: "#/job/" + encodeURIComponent(id), "data-key": "job " + id }, id);
}

// ---- words -----------------------------------------------------------------------------------

const number = (value) => value === null ? "–" : value.toLocaleString("en");
const when = (time) => time === null ? "–" : time.slice(0, 19).replace("T", " ") + " UTC";

function span(ms) {
  if (ms === null) return "–";
  if (ms < 1000) return Math.round(ms) + " ms";
  const seconds = ms / 1000;
  if (seconds < 120) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  if (seconds < 172800) return Math.round(seconds / 3600) + " h";
  return Math.round(seconds / 86400) + " d";
}

function why(target) {
  if (target.state === "paused") return "paused by hand";
  const failures = number(target.failures_in_row) + (target.failures_in_row === 1 ? " failure" : " failures in a row");
  if (target.asked_until !== null) return "asked to wait until " + when(target.asked_until) + " (Retry-After)";
  if (target.state === "held") return (target.failures_in_row > 0 ? failures + "; " : "") + "next probe " + when(target.next_probe_at);
  if (target.penalty_pin !== null) return "level fixed by hand at " + target.penalty_pin;
  if (target.state !== "penalised") return "";
  const reasons = {
    failures_in_row: failures,
    waiting_retries: number(target.retries) + " waiting jobs have failed before",
    wasted_slots: "wastes slots by slow or failing attempts, p95 " + span(target.latency_p95_ms),
  };
  return "level " + target.penalty + ": " + target.penalty_reasons.map((reason) => reasons[reason] || reason).join("; ");
}

// Attempts of the last hours, a bar an hour: what was not delivered stands on what was.
function spark(target) {
  const svg = (tag, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  if (target.hours.length === 0) return "–";
  const most = Math.max(...target.hours.map((hour) => hour.delivered + hour.failed));
  const first = Math.floor(Date.now() / HOUR_MS) - SPARK_HOURS + 1;
  const bars = target.hours.flatMap((hour) => {
    const x = 4 * (Math.floor(Date.parse(hour.hour) / HOUR_MS) - first);
    const height = (jobs) => jobs === 0 ? 0 : Math.max(1, 24 * jobs / most);
    const [good, bad] = [height(hour.delivered), height(hour.failed)];
    const bar = (kind, y, height) => svg("rect", { class: kind, x, y: y.toFixed(1), width: 3, height: height.toFixed(1) });
    return [bar("good", 26 - good, good), bar("bad", 26 - good - bad, bad)];
  });
  const sum = (name) => target.hours.reduce((total, hour) => total + hour[name], 0);
  const text = "last " + SPARK_HOURS + " hours: " + number(sum("delivered")) + " delivered, " + number(sum("failed")) + " not";
  return svg("svg", { class: "spark", viewBox: "0 0 " + 4 * SPARK_HOURS + " 26", role: "img", "aria-label": text },
    svg("title", {}, text), ...bars);
}

// ---- asking ----------------------------------------------------------------------------------

async function api(method, path, body) {
  const request = { method, headers: { accept: "application/json" } };
  if (body !== undefined) {
    request.headers["content-type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  const answer = await fetch(path, request);
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(value.detail || "the API answered " + answer.status);
  return value;
}

const targetPath = (name, rest) => "/v1/targets/" + encodeURIComponent(name) + (rest || "");

function say(text, kind) {
  $("status").textContent = text;
  $("status").className = kind || "";
}

// Does something that changes something, says how it went, and shows what is now.
async function act(text, change) {
  try {
    const said = await change();
    await refresh();
    say(said || text + ": done");
  } catch (error) {
    say(text + ": " + error.message, "bad");
  }
}

// Asks the person; gives the values of the fields, or null.
function ask(title, text, fields, ok) {
  $("dialog-title").textContent = title;
  $("dialog-text").textContent = text;
  $("dialog-ok").textContent = ok;
  $("dialog-fields").replaceChildren(...fields.map((field) => h("label", null, field.label,
    h("input", { name: field.name, type: "number", value: field.value === null ? "" : field.value,
      min: field.min, max: field.max, step: field.step || 1, placeholder: "none" }))));
  const dialog = $("dialog");
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    const values = Object.fromEntries(new FormData($("dialog-form")));
    resolve(dialog.returnValue === "ok" ? values : null);
  }, { once: true }));
}

// ---- actions ---------------------------------------------------------------------------------

async function setLimits(target) {
  const values = await ask("Limits of " + target.target, "An empty field takes the limit away.", [
    { name: "max_in_flight", label: "Attempts at one time", value: target.max_in_flight, min: 1, max: 1000000 },
    { name: "rate_per_second", label: "Attempts a second", value: target.rate_per_second, min: 0, max: 1000000, step: "any" },
    { name: "penalty", label: "Penalty, fixed at level", value: target.penalty_pin, min: 0, max: 9 },
  ], "Set");
  if (values === null) return;
  const change = Object.fromEntries(Object.entries(values).map(([name, text]) => [name, text === "" ? null : Number(text)]));
  await act("limits of " + target.target, () => api("PATCH", targetPath(target.target), change).then(() => ""));
}

// Has failed jobs put back, and says how far that has come while this page is open.
async function replay(which, count) {
  const about = which.error_kind ? " with " + which.error_kind : "";
  const text = number(count) + " failed jobs of " + which.target + about + " go back into the degraded queue, 100 a second.";
  if (await ask("Replay " + number(count) + " jobs?", text, [], "Replay " + number(count)) === null) return;
  await act("replay", async () => {
    let replay = await api("POST", "/v1/jobs/replay", { ...which, status: "failed", limit: Math.min(count, 100000) });
    while (replay.finished_at === null) {
      say("replayed " + number(replay.done) + " of " + number(Math.max(replay.total, replay.done)) + " jobs of " + which.target);
      await new Promise((resolve) => setTimeout(resolve, REPLAY_LOOK_MS));
      replay = await api("GET", "/v1/replays/" + replay.id);
    }
    return "replayed " + number(replay.done) + " jobs of " + which.target + (replay.state === "cancelled" ? ", then cancelled" : "");
  });
}

function targetActions(target) {
  const name = target.target;
  const paused = target.state === "paused";
  return [
    button(paused ? "Resume" : "Pause", "pause " + name, () =>
      act((paused ? "resume " : "pause ") + name, () =>
        api("POST", targetPath(name, paused ? "/resume" : "/pause")).then(() => ""))),
    button("Limits", "limits " + name, () => setLimits(target)),
    target.state === "held"
      ? button("Probe now", "probe " + name, () =>
        act("probe " + name, () => api("POST", targetPath(name, "/probe")).then(() => "")))
      : null,
    target.failed > 0
      ? button("Replay", "replay " + name, () => replay({ target: name }, target.failed))
      : null,
  ];
}

// The targets to show: the one that is asked for, or those that come first.
async function targets() {
  if (state.argument !== "") return [await api("GET", targetPath(state.argument, "?hours=" + SPARK_HOURS))];
  const lists = [];
  for (const order of state.order ? [state.order] : ["waiting", "failing"]) {
    lists.push(...(await api("GET", "/v1/targets?limit=100&hours=" + SPARK_HOURS + "&order=" + order)).targets);
  }
  return [...new Map(lists.map((target) => [target.target, target])).values()];
}

// ---- screens: each gives [data, function that shows it] ----------------------------------------

const screens = {
  async targets() {
    const data = { targets: await targets() };
    return [data, () => {
      const option = ([value, text]) => h("option", { value, selected: value === state.order && "" }, text);
      const orders = [["", "waiting, then failing"], ["waiting", "most waiting"], ["failing", "failing"], ["slow", "slowest"]];
      const find = (event) => {
        event.preventDefault();
        location.hash = "#/targets/" + encodeURIComponent(new FormData(event.target).get("name").trim());
      };
      const change = (event) => { state.order = event.target.value; refresh(); };
      return [
        h("div", { class: "bar" }, h("label", null, "Order",
          h("select", { "data-key": "order", onchange: change }, orders.map(option))),
          h("form", { onsubmit: find }, h("label", null, "One target",
            h("input", { name: "name", value: state.argument, autocomplete: "off", spellcheck: "false", "data-key": "name" })))),
        table("Targets", [
          ["Target", "name", (t) => t.target],
          ["State", "state", (t) => h("div", null, h("span", { class: t.state }, t.state), " ", h("div", { class: "why" }, why(t)))],
          ["Waiting", "number", (t) => number(t.waiting)],
          ["In flight", "number", (t) => number(t.running) + " / " + (t.max_in_flight === null ? "auto" : number(t.max_in_flight))],
          ["Failed", "number", (t) => number(t.failed)],
          ["Last day", "", spark],
          ["p95", "number", (t) => span(t.latency_p95_ms)],
          ["Last error", "", (t) => t.last_error_kind === null ? "–" : h("div", null, t.last_error_kind, h("div", { class: "why" }, when(t.last_error_at)))],
          ["Actions", "actions", targetActions],
        ], data.targets),
      ];
    }];
  },

  async overview() {
    const data = await api("GET", "/v1/overview");
    const now = Date.now();
    state.samples.push({ now, ...data.attempts });
    state.samples = state.samples.filter((sample) => now - sample.now <= RATE_WINDOW_MS);
    return [data, () => {
      const sum = (name) => data.queues.reduce((total, queue) => total + queue[name], 0);
      const [first, last] = [state.samples[0], state.samples[state.samples.length - 1]];
      const seconds = (last.now - first.now) / 1000;
      const rate = (name) => seconds < 1 ? null : Math.max(0, last[name] - first[name]) / seconds;
      const delivered = rate("delivered");
      const all = delivered === null ? null : delivered + rate("retryable") + rate("permanent");
      const oldest = Math.max(...data.queues.map((queue) => queue.oldest_due_age_ms || 0));
      const waiting = sum("available");
      const drain = !delivered ? (waiting === 0 ? "empty" : "not draining")
        : "about " + span(waiting / delivered * 1000) + " at this rate";
      const tile = (name, value, note) => h("div", { class: "tile" }, name, h("b", null, value), h("span", { class: "why" }, note || ""));
      const each = (value) => value === null ? "measuring" : value.toFixed(1) + " / s";
      return [
        h("div", { class: "tiles" },
          tile("Oldest due job", oldest === 0 ? "none" : span(oldest), "since it fell due"),
          tile("Delivered", each(delivered), "over the last minute"),
          tile("Success", all ? (100 * delivered / all).toFixed(1) + " %" : "–", "of attempts"),
          tile("Backlog", number(waiting), drain),
          tile("In flight", number(sum("running"))),
          tile("Failed, kept", number(sum("failed"))),
          tile("Penalised targets", number(data.targets.penalised)),
          tile("Held targets", number(data.targets.held)),
          tile("Paused targets", number(data.targets.paused))),
        table("Queues", [
          ["Queue", "", (q) => q.queue],
          ["Waiting", "number", (q) => number(q.available)],
          ["In flight", "number", (q) => number(q.running)],
          ["Oldest due", "number", (q) => span(q.oldest_due_age_ms)],
          ["Completed", "number", (q) => number(q.completed)],
          ["Failed", "number", (q) => number(q.failed)],
          ["Cancelled", "number", (q) => number(q.cancelled)],
        ], data.queues),
      ];
    }];
  },

  async failures() {
    const data = await api("GET", "/v1/failures?limit=200");
    return [data, () => [
      data.sampled ? h("p", { class: "quiet" }, "Only the newest 10,000 failed jobs are counted.") : null,
      table("Failures", [
        ["Target", "name", (f) => f.target],
        ["Error", "", (f) => f.error_kind || "–"],
        ["Jobs", "number", (f) => number(f.jobs)],
        ["Last", "", (f) => when(f.last_finished_at)],
        ["Newest job", "", (f) => jobLink(f.newest_job)],
        ["Actions", "actions", (f) => button("Replay", "replay " + f.target + " " + f.error_kind, () =>
          replay({ target: f.target, error_kind: f.error_kind }, f.jobs))],
      ], data.failures),
    ]];
  },

  async next() {
    const data = await api("GET", "/v1/next?limit=100");
    const reason = (d) => {
      if (d.state === "paused") return "waits until it is resumed";
      if (d.state === "held") return "waits but for single probes";
      const level = d.penalty === 0 ? "healthy" : "penalised, level " + d.penalty;
      return level + "; " + (d.retries ? "retries, after first tries" : "first tries");
    };
    return [data, () => [
      h("p", { class: "quiet" }, "Due jobs by target, in the order of service: level of the target, first tries before retries, age. Targets of one level take turns."),
      table("Next", [
        ["Target", "name", (d) => d.target],
        ["Why here", "state", (d) => h("div", null, h("span", { class: d.state }, d.state), " ", h("div", { class: "why" }, reason(d)))],
        ["Queue", "", (d) => d.queue],
        ["Due jobs", "number", (d) => number(d.due)],
        ["Oldest", "number", (d) => span(d.oldest_due_age_ms)],
        ["First job", "", (d) => jobLink(d.first_job)],
      ], data.next),
    ]];
  },

  async job() {
    const id = state.argument;
    const go = (event) => {
      event.preventDefault();
      location.hash = "#/job/" + encodeURIComponent(new FormData(event.target).get("id").trim());
    };
    const form = () => h("form", { class: "bar", onsubmit: go }, h("label", null, "Job id",
      h("input", { name: "id", id: "job-id", value: id, size: 38, autocomplete: "off", spellcheck: "false", "data-key": "id" })),
      h("button", { class: "primary" }, "Show"));
    if (id === "") return [null, form];
    const job = await api("GET", "/v1/jobs/" + encodeURIComponent(id) + (state.body ? "?body=true" : ""));
    return [job, () => [form(), ...jobParts(job)]];
  },
};

function jobParts(job) {
  const path = "/v1/jobs/" + encodeURIComponent(job.id);
  const change = (word) => () => act(word + " " + job.id, () => api("POST", path + "/" + word).then(() => ""));
  const fact = (name, value) => [h("dt", null, name), h("dd", null, value)];
  const final = ["completed", "failed", "cancelled"].includes(job.status);
  return [
    h("h2", null, job.method + " " + job.url),
    h("div", { class: "bar" },
      job.status === "available" ? button("Cancel job", "cancel", change("cancel")) : null,
      final ? button("Retry job", "retry", change("retry"), "primary") : null,
      button(state.body ? "Hide body" : "Show body", "body", () => { state.body = !state.body; refresh(); })),
    h("dl", null,
      fact("Status", h("span", { class: job.status }, job.status)),
      fact("Target", job.target),
      fact("Queue", job.queue),
      fact("Attempts", job.attempt + " of " + job.max_attempts),
      fact("Enqueued", when(job.created_at)),
      fact(final ? "Was due" : "Next attempt", when(job.scheduled_at)),
      job.expires_at === null ? [] : fact("Expires", when(job.expires_at)),
      job.finished_at === null ? [] : fact("Ended", when(job.finished_at) + (job.error_kind ? ": " + job.error_kind : "")),
      fact("Headers", h("pre", null, JSON.stringify(job.headers, null, 1)))),
    state.body ? h("pre", { id: "body" }, job.body === undefined ? job.body_base64 : job.body) : null,
    h("ol", { class: "timeline", "aria-label": "Attempts" }, job.attempts.map((attempt) => h("li", null,
      h("div", null, "Attempt " + attempt.attempt + ": ", h("span", { class: attempt.outcome }, attempt.outcome),
        " " + [attempt.error_kind, attempt.response_status].filter((word) => word !== null).join(" ")),
      h("div", { class: "why" }, when(attempt.started_at) + ", " + span(attempt.duration_ms) + ", worker " + attempt.worker),
      attempt.response_excerpt ? h("pre", null, attempt.response_excerpt + (attempt.response_truncated ? " …" : "")) : null))),
  ];
}

// ---- showing ---------------------------------------------------------------------------------

let asked = 0;
let pending = 0;
// What is on the screen, as text: nothing is drawn again that did not change.
let drawn = "";
async function refresh() {
  const mine = ++asked;
  pending += 1;
  try {
    const [data, show] = await screens[state.screen]();
    if (mine !== asked) return;
    if (JSON.stringify([state, data]) !== drawn) draw(show);
    drawn = JSON.stringify([state, data]);
    say("as of " + new Date().toISOString().slice(11, 19) + " UTC");
    document.body.dataset.ready = state.screen;
  } catch (error) {
    if (mine === asked) say(error.message, "bad");
  } finally {
    pending -= 1;
  }
}

// Replaces what is shown; the focus stays where it was.
function draw(show) {
  const focused = document.activeElement;
  const key = focused && main.contains(focused) ? focused.dataset.key : undefined;
  const typed = focused && focused.tagName === "INPUT" && key !== undefined ? focused.value : undefined;
  main.replaceChildren(...[show()].flat().filter((part) => part !== null));
  if (key === undefined) return;
  const again = [...main.querySelectorAll("[data-key]")].find((element) => element.dataset.key === key);
  if (!again) return;
  if (typed !== undefined) again.value = typed;
  again.focus({ preventScroll: true });
}

function route() {
  const [, screen, ...rest] = location.hash.split("/");
  state.screen = Object.hasOwn(screens, screen || "") ? screen : "targets";
  let argument = rest.join("/");
  try { argument = decodeURIComponent(argument); } catch { argument = ""; }
  if (argument !== state.argument) state.body = false;
  state.argument = argument;
  drawn = "";
  document.title = "hook: " + state.screen;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.screen === state.screen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  delete document.body.dataset.ready;
  main.replaceChildren();
  refresh();
}

document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  if (typing || event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
  const link = document.querySelectorAll("nav a")[Number(event.key) - 1];
  if (link && /^[1-5]$/.test(event.key)) location.hash = link.getAttribute("href");
  else if (event.key === "r") refresh();
});
addEventListener("hashchange", route);
$("dialog-cancel").addEventListener("click", () => $("dialog").close("cancel"));
// An answer that takes longer than the interval is waited for.
setInterval(() => { if (!document.hidden && !$("dialog").open && pending === 0) refresh(); }, REFRESH_MS);
route();
