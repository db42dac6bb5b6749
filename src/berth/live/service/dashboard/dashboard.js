// The dashboard: it draws the API's answers, and stores nothing on the server.

import { amount, asks, card, chart, clock, h, interval, job, number, percent, phase, quiet, seconds, several, short, signed, table }
  from "./parts.js";

const REFRESH = 2000;
const MANY = 60; // from this many servers on, each is a cell instead of a card
const NAMED = 8; // the most jobs of a server that are named
const FASTEST = 20; // how many of the fastest and of the slowest servers of a type are shown
const page = document.getElementById("page");
const status = document.getElementById("state");

// ---------------------------------------------------------------- the API

let token = sessionStorage.getItem("berth-token");
class NoToken extends Error {}
class Away extends Error {}

async function ask(path, sent) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (sent) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`/v1/${path}`, sent ? { method: "POST", headers, body: JSON.stringify(sent) } : { headers });
  } catch {
    throw new Away("the service does not answer");
  }
  const body = await answer.json().catch(() => ({}));
  if (answer.status === 401) throw new NoToken(["expired token", "replaced token"].includes(body.title) ? body.detail : "");
  if (!answer.ok) throw new Error(body.detail || body.title || `HTTP ${answer.status}`);
  return body;
}

function login(why) {
  const field = h("input", { type: "password", name: "token", "aria-label": "token", autocomplete: "off", required: "" });
  const wrong = token ? h("p", { class: "bad", role: "alert" }, why || "Unknown or revoked token.") : null;
  return [h("form", {
    class: "card login",
    onsubmit: (event) => {
      event.preventDefault();
      token = field.value.trim();
      sessionStorage.setItem("berth-token", token);
      page.replaceChildren(quiet("Loading …"));
      draw();
    },
  }, h("h1", {}, "Sign in"),
  h("p", {}, "This service needs a token. An operator creates one with ", h("code", {}, "berth token create NAME"), "."),
  wrong, h("div", { class: "row" }, field, h("button", { type: "submit", class: "main" }, "Enter")))];
}

// ---------------------------------------------------------------- the cluster

function holding(jobs) {
  const found = new Map();
  for (const one of jobs) {
    for (const place of one.places) {
      if (!found.has(place.server)) found.set(place.server, []);
      found.get(place.server).push([one, place]);
    }
  }
  return found;
}

function share(server, name) {
  const all = amount(server.capacity[name]);
  return all ? 1 - amount(server.free[name] ?? "0") / all : 0;
}

function bar(part) {
  return h("div", { class: "bar" }, h("span", { class: part > 0.99 ? "full" : "", style: { width: `${100 * part}%` } }));
}

function serverCard(server, held = []) {
  const rows = Object.entries(server.capacity).map(([name, whole]) => {
    const all = amount(whole), part = share(server, name), taken = server.taken[name];
    const others = taken === undefined ? "" : `, ${short(amount(taken))} by others`;
    return h("div", { class: "resource" }, h("span", {}, name), bar(part),
      h("span", { class: "quiet" }, `${short(all * part)} of ${short(all)}${others}`));
  });
  return h("section", { class: `card server ${server.state}` },
    h("h2", {}, server.name, " ", server.state === "up" ? null : h("span", { class: "phase away" }, server.state)), rows,
    server.kept_for ? h("div", { class: "holders warn" }, "reserved for ", job(server.kept_for)) : null,
    h("div", { class: "holders" }, held.slice(0, NAMED).map(([one, place]) =>
      h("span", {}, job(one.id), place.tasks > 1 ? ` ×${place.tasks}` : "")),
    held.length > NAMED ? h("span", { class: "quiet" }, `and ${held.length - NAMED} more`) : null));
}

function serverCell(server, held = []) {
  const part = Math.max(0, ...Object.keys(server.capacity).map((name) => share(server, name)));
  const names = held.slice(0, NAMED).map(([one]) => one.id).join(", ");
  const told = `${server.name}: ${server.state}, ${percent(part)} of its scarcest resource is held`;
  return h("div", {
    class: `cell ${server.state}`, role: "img", "aria-label": told, title: names ? `${told} by ${names}` : told,
    style: { background: `color-mix(in srgb, var(--accent) ${Math.round(100 * part)}%, var(--fill))` },
  });
}

function grid(servers, held) {
  if (servers.length <= MANY) {
    return h("div", { class: "servers" }, servers.map((one) => serverCard(one, held.get(one.name))));
  }
  return card(`${servers.length} servers`, h("div", { class: "servers many" },
    servers.map((one) => serverCell(one, held.get(one.name)))),
  h("div", { class: "legend" }, h("span", {}, h("i", { class: "empty" }), "nothing held"),
    h("span", {}, h("i", { class: "held" }), "full"), h("span", {}, h("i", { class: "out" }), "closed, drained or lost")));
}

function holderTable(holders) {
  const used = holders.filter((one) => one.kind !== "queue" || holders.some((other) => Object.keys(other.limit).length));
  const names = [...new Set(used.flatMap((one) => [...Object.keys(one.held), ...Object.keys(one.limit)]))];
  return table([["", (one) => h("span", { class: "quiet" }, one.kind)], ["name", (one) => one.name],
    ["jobs", (one) => String(one.jobs), "right"], ...names.map((name) => [name, (one) => {
      const limit = one.limit[name];
      return `${short(amount(one.held[name]))}${limit === undefined ? "" : ` of ${short(amount(limit))}`}`;
    }, "right"])], used, "nothing is held");
}

async function cluster() {
  const [servers, running, waiting, policy, holders] = await Promise.all([
    ask("servers"), ask("jobs?phase=running&phase=starting&phase=ending&limit=1000"), ask("queue?limit=1"),
    ask("policy"), ask("holders")]);
  const there = servers.filter((one) => one.state !== "lost");
  const names = [...new Set(there.flatMap((one) => Object.keys(one.capacity)))];
  const totals = names.map((name) => {
    const all = there.reduce((sum, one) => sum + amount(one.capacity[name]), 0);
    const free = there.reduce((sum, one) => sum + amount(one.free[name]), 0);
    return number(name, percent(all ? 1 - free / all : 0), `of ${short(all)} held`);
  });
  const up = servers.filter((one) => one.state === "up").length;
  const refused = Object.values(policy.refusals).reduce((a, b) => a + b, 0);
  return [h("h1", {}, "Cluster now"), h("div", { class: "cards" },
    number("servers up", up, up < servers.length ? `of ${servers.length}` : "all of them"),
    number("running", `${running.jobs.length}${running.after !== null ? "+" : ""}`, "jobs"),
    number("waiting", waiting.waiting, "jobs"), totals,
    number("policy", policy.policy, refused ? `${several(refused, "decision")} refused` : "no decision refused")),
  grid(servers, holding(running.jobs)), card("Who holds what", holderTable(holders))];
}

// ---------------------------------------------------------------- the queue

async function queue() {
  const found = await ask("queue");
  const rest = found.waiting - found.jobs.length;
  return [h("h1", {}, found.waiting === 1 ? "1 job waits" : `${found.waiting} jobs wait`),
    quiet("In queue order. A job's page has the full explanation."),
    card("Queue", table([
      ["#", (one) => String(one.position), "right quiet"], ["job", (one) => job(one.job.id)],
      ["why it waits", (one) => one.why, "wide"], ["waits", (one) => seconds(one.waits), "right"],
      ["asks for", (one) => asks(one.job.roles), "wide"], ["type", (one) => one.job.type], ["user", (one) => one.job.user],
      ["team", (one) => one.job.team], ["queue", (one) => one.job.queue],
    ], found.jobs, "no job waits"), rest > 0 ? quiet(`and ${rest} more after these`) : null)];
}

// ---------------------------------------------------------------- history

async function history() {
  const [steps, shadow, policy] = await Promise.all([ask("history"), ask("shadow"), ask("policy")]);
  const times = steps.map((one) => one.time);
  const names = [...new Set(steps.flatMap((one) => Object.keys(one.used)))];
  const of = (...keys) => keys.map((key) => [key, steps.map((one) => one[key])]);
  const width = page.clientWidth - 60;
  const picture = (title, series, more = {}) => card(title, chart(title, times, series, { width, ...more }));
  return [h("h1", {}, "Since the service began"), against(shadow, policy), h("div", { class: "charts" },
    picture("Jobs a minute", of("submitted", "started", "finished", "failed")),
    picture("Share of the cluster in use", names.map((name) => [name, steps.map((one) => one.used[name] ?? 0)]),
      { top: 1, show: percent }),
    picture("Jobs waiting", of("waiting")),
    picture("Mean wait of jobs that started", [["wait", steps.map((one) => (one.started ? one.waits / one.started : null))]],
      { show: seconds }),
    picture("Slowest decision of each minute", of("slowest"), { show: seconds }),
    picture("Decisions a minute", of("decisions", "refused")))];
}

const MEASURES = [["saved", "task-seconds saved per decision"], ["started", "more jobs started per decision"]];

function verdict({ low, high }) {
  if (low === null) return ["", "too early to say"];
  if (low > 0) return ["good", "would have been better"];
  if (high < 0) return ["bad", "would have been worse"];
  return ["", "no clear difference"];
}

function compared(kind, one, reach) {
  const rows = MEASURES.map(([key, words]) => {
    const found = one.report[key], [colour, said] = verdict(found);
    return h("div", { class: "measure" }, h("span", {}, words),
      h("span", {}, h("strong", {}, signed(found.mean)), h("span", { class: "quiet" },
        found.low === null ? " (no interval yet)" : ` (${signed(found.low)} to ${signed(found.high)})`)),
      interval(found, [-reach[key], reach[key]], 0, colour), h("span", { class: colour || "quiet" }, said));
  });
  return [h("h3", {}, h("strong", {}, one.policy), `, the ${kind}: ${several(one.report.decisions, "decision")}, ${one.report.alike} the same`), rows];
}

function against(shadow, policy) {
  const others = [["candidate", shadow.policy ? shadow : null], ["fallback", shadow.fallback]].filter(([, one]) => one?.report.saved);
  const reach = Object.fromEntries(MEASURES.map(([key]) => [key, 1.1 * Math.max(1e-9, ...others.flatMap(([, one]) =>
    [one.report[key].mean, one.report[key].low ?? 0, one.report[key].high ?? 0].map(Math.abs)))]));
  return card(`Gain and regret of ${policy.policy}`,
    others.length ? quiet("What other policies would have gained at the same decisions. Right of the line they would have been ",
      "better (regret); left of it the policy was better (gain). Bars are 95 % intervals.")
      : quiet(shadow.fallback || shadow.policy ? "No comparison yet." : "The fallback is the policy: there is nothing to compare."),
    others.map(([kind, one]) => compared(kind, one, reach)),
    shadow.policy ? null : quiet("No shadow policy is set. An operator sets one with ", h("code", {}, "berth policy shadow NAME"), "."));
}

// ---------------------------------------------------------------- learned speeds

const saved = { words: "", asked: false }; // what learning saved, by the last replay

async function playFallback(fallback) {
  Object.assign(saved, { words: "Replaying the last day …", asked: true });
  draw();
  try {
    const { report } = await ask("what-if", { policy: fallback, hours: 24 });
    const told = (found, times, unit) => `${signed(times * found.mean)} ${unit}`
      + (found.low === null ? "" : ` (${signed(times * found.low)} to ${signed(times * found.high)})`);
    saved.words = `With ${fallback} the runs of ${several(report.jobs, "job")} would have taken `
      + `${told(report.run, report.jobs / 3600, "task-hours")}, and a job from submission to end ${told(report.turnaround, 1, "s")}: `
      + `that is what ${report.actual.policy} has saved.`;
  } catch (error) {
    saved.words = `The replay failed: ${error.message}`;
  }
  saved.asked = false;
  draw();
}

function savings({ policy, fallback }) {
  if (policy === fallback) return card("What learning has saved", quiet("The fallback is the policy: there is nothing to compare."));
  return card("What learning has saved", saved.words ? h("p", { id: "saved" }, saved.words)
    : quiet("Replay the jobs of the last day under the fallback, with the learned speeds."),
  h("button", { disabled: saved.asked ? "" : null, onclick: () => playFallback(fallback) }, "Replay the last day"));
}

async function learned() {
  const [found, policy] = await Promise.all([ask("learned"), ask("policy")]);
  const lines = found.map((one) => ({ ...one, mean: one.speed }));
  const largest = Math.max(1.2, ...lines.flatMap((one) => [one.mean, Math.min(one.high ?? 0, 2 * one.mean)]));
  const types = [...new Set(lines.map((one) => one.type))].sort();
  const cards = types.map((type) => {
    const mine = lines.filter((one) => one.type === type).sort((a, b) => b.speed - a.speed);
    const between = Math.max(0, mine.length - 2 * FASTEST);
    const shown = between ? [...mine.slice(0, FASTEST), ...mine.slice(-FASTEST)] : mine;
    return card(type, table([["server", (one) => one.server], ["runs", (one) => String(one.runs), "right"],
      ["from", (one) => one.level], ["speed", (one) => `${one.speed.toFixed(2)} (${one.low.toFixed(2)} to ${one.high.toFixed(2)})`, "right"],
      ["", (one) => interval(one, [0, largest], 1)]], shown),
    between ? quiet(`The ${FASTEST} fastest and the ${FASTEST} slowest; ${between} are between them.`) : null);
  });
  return [h("h1", {}, "Learned speed of each job type on each server"),
    quiet("1 (the line) is the stated speed. Estimates pool the runs of all types and servers; bars are 95 % intervals. ",
      "Servers of a class on which a type never ran share a row."), savings(policy),
    cards.length ? h("div", { class: "charts" }, cards) : card("Nothing yet", quiet("no job has finished"))];
}

// ---------------------------------------------------------------- decisions

async function decisions() {
  const found = (await ask("decisions?limit=100")).reverse();
  const some = (jobs) => [jobs.slice(0, NAMED).map((id) => [job(id), " "]),
    jobs.length > NAMED ? h("span", { class: "quiet" }, `and ${jobs.length - NAMED} more`) : null];
  return [h("h1", {}, "Latest decisions"), card("Who decided, and what", table([
    ["#", (one) => String(one.number), "right quiet"], ["when", (one) => clock(one.time)], ["by", (one) => one.by],
    ["took", (one) => seconds(one.seconds), "right"], ["waiting", (one) => String(one.waiting), "right"],
    ["started", (one) => some(one.starts.map((start) => start.job)), "wide"],
    ...(found.some((one) => one.interrupts.length) ? [["interrupted", (one) => some(one.interrupts), "wide"]] : []),
    ["reserved", (one) => Object.entries(one.kept).slice(0, 3).map(([server, id]) => h("div", {}, `${server} for `, job(id)))],
    ["refused", (one) => (one.refused ? h("span", { class: "bad" }, one.refused) : ""), "wide"],
  ], found))];
}

// ---------------------------------------------------------------- one job

function why({ text, why: parts }) {
  if (!parts.blocks) return card("Why", h("p", {}, text));
  const eta = parts.eta;
  const starts = eta && (eta.middle === null ? `unknown: ${eta.reason}`
    : `in ${seconds(eta.low)} to ${seconds(eta.high)}, most likely about ${seconds(eta.middle)}`
      + (eta.checked >= 20 ? `; ${Math.round(100 * eta.held)} % of the last ${eta.checked} such forecasts held` : ""));
  return card(parts.phase === "waiting" ? "Why it waits" : "Why it is there",
    h("ul", { class: "reasons" }, parts.blocks.map((one) => h("li", {}, one))),
    parts.servers.length ? table([["servers", (one) => String(one.servers), "right"],
      ["", (one) => one.names.join(", ") + (one.servers > one.names.length ? ", …" : "")], ["state", (one) => one.text, "wide"]],
    parts.servers) : null,
    parts.changes.length ? [h("h3", {}, "It would start if you"),
      h("ul", {}, parts.changes.map((one) => h("li", {}, one.steps.join(" and "))))] : null,
    starts ? [h("h3", {}, "When it starts"), h("p", {}, starts)] : null);
}

async function oneJob(id) {
  const name = encodeURIComponent(id);
  const [one, explained] = await Promise.all([ask(`jobs/${name}`), ask(`jobs/${name}/explain`)]);
  const pairs = (given) => Object.entries(given).map(([key, value]) => `${key}=${value}`).join(", ");
  const facts = { type: one.type, user: one.user, team: one.team, queue: one.queue, priority: one.priority,
    submitted: clock(one.submitted), started: one.started && clock(one.started), ended: one.ended && clock(one.ended),
    attempt: one.attempt || null, interruptions: one.interruptions || null, reason: one.reason, "last output": one.last_output, needs: pairs(one.needs),
    work: one.work && seconds(one.work), estimate: one.estimate && seconds(one.estimate),
    "time limit": one.limit && seconds(one.limit), deadline: one.deadline && seconds(one.deadline), ...one.details };
  const hidden = (key) => (one.payload[key] === null ? "hidden" : one.payload[key]); // null: not for this token
  const runs = { command: one.payload.command ? one.payload.command.join(" ") : hidden("command"), workdir: hidden("workdir"), image: hidden("image"),
    environment: Object.entries(one.payload.environment ?? {}).map(([key, value]) => (value === null ? key : `${key}=${value}`)).join(", "),
    script: hidden("script") };
  const list = (given) => h("dl", {}, Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([key, value]) => [h("dt", {}, key), h("dd", {}, String(value))]));
  return [h("h1", {}, one.id, " ", phase(one.phase)), why(explained), h("div", { class: "charts" },
    card("Facts", list(facts)),
    card("Tasks", table([["role", ([key]) => key],
      ["tasks", ([, role]) => (role.minimum === role.count ? String(role.count) : `${role.minimum} to ${role.count}`), "right"],
      ["each takes", ([, role]) => Object.entries(role.resources).map(([k, v]) => `${v} ${k}`).join(", "), "wide"]], Object.entries(one.roles)),
    one.places.length ? [h("h3", {}, "Where"), table([["server", (p) => p.server], ["role", (p) => p.role],
      ["tasks", (p) => String(p.tasks), "right"]], one.places)] : null),
    Object.values(runs).some(Boolean) ? card("What it runs", list(runs)) : null)];
}

// ---------------------------------------------------------------- routes and refresh

const PAGES = { "": cluster, queue, history, learned, decisions };
let drawing = 0;

async function draw() {
  const turn = ++drawing;
  const [, name = "", rest = ""] = location.hash.split("/");
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === `#/${name}`;
    if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  try {
    const made = name === "job" ? await oneJob(decodeURIComponent(rest)) : await (PAGES[name] ?? cluster)();
    if (turn !== drawing) return;
    replace(made);
    status.textContent = "";
    document.body.dataset.page = name || "cluster";
    document.body.dataset.place = location.hash;
  } catch (error) {
    if (turn !== drawing) return;
    if (error instanceof NoToken) {
      page.replaceChildren(...login(error.message));
      page.querySelector("input").focus();
      status.textContent = "";
      document.body.dataset.page = "login";
    } else if (error instanceof Away || document.body.dataset.place === location.hash) {
      status.textContent = `${error.message}; showing the last known state`;
    } else {
      replace([h("h1", {}, "This page cannot be shown"), card("Why", h("p", { class: "bad" }, error.message))]);
    }
  }
}

// Tables keep their scroll position when they are redrawn.
function replace(made) {
  const scrolled = [...page.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  page.replaceChildren(...made.flat(Infinity));
  [...page.querySelectorAll(".scroll")].forEach((one, i) => { one.scrollLeft = scrolled[i] ?? 0; });
}

const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("berth-theme", root.dataset.theme);
});
const kept = localStorage.getItem("berth-theme");
if (kept === "light" || kept === "dark") root.dataset.theme = kept;
const busy = () => document.hidden || page.querySelector("form") || !getSelection().isCollapsed || document.activeElement?.closest("main a");
window.addEventListener("hashchange", () => { page.replaceChildren(quiet("Loading …")); scrollTo(0, 0); draw(); });
setInterval(() => { if (!busy()) draw(); }, REFRESH);
draw();
