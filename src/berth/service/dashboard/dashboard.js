// The pages of berth: they draw what the API tells, and keep nothing on the server.
// Text from outside only ever becomes text nodes, never markup.

const REFRESH = 2000;
const MANY = 60; // from so many servers on, a cell each instead of a card
const COLOURS = ["var(--accent)", "var(--good)", "var(--warn)", "var(--bad)", "var(--quiet)"];
const page = document.getElementById("page");
const status = document.getElementById("state");

// ---------------------------------------------------------------- small things

function h(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "rect", "title", "g"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "onclick" || name === "onsubmit") made.addEventListener(name.slice(2), value);
    else if (name === "width" && !svg) made.style.width = value;
    else if (name === "background") made.style.background = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const job = (id) => h("a", { href: `#/job/${encodeURIComponent(id)}` }, id);
const phase = (name) => h("span", { class: `phase ${name}` }, name);

function table(columns, rows) {
  if (!rows.length) return h("p", { class: "quiet" }, "nothing here yet");
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map(([title, , kind]) => h("th", { class: kind, scope: "col" }, title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row))))))));
}

const card = (title, ...inside) => h("section", { class: "card wide" }, h("h2", {}, title), ...inside);
const number = (title, value, note) => h("section", { class: "card" }, h("div", { class: "quiet" }, title),
  h("div", { class: "number" }, String(value)), note ? h("div", { class: "quiet" }, note) : null);

const SIZES = { m: 1e-3, "": 1, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50 };
function amount(text) {
  const found = /^([\d.]+)([A-Za-z]*)$/.exec(text ?? "0");
  return found ? Number(found[1]) * (SIZES[found[2]] ?? 1) : 0;
}
function short(value) {
  for (const [suffix, size] of [["Pi", 2 ** 50], ["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20]]) {
    if (value >= 4 * size) return `${(value / size).toFixed(value / size < 10 ? 1 : 0)}${suffix}`;
  }
  return Number(value.toFixed(2)).toString();
}
const percent = (part) => `${(100 * part).toFixed(0)} %`;
function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 1) return `${(1000 * value).toFixed(1)} ms`;
  if (value < 120) return `${value.toFixed(1)} s`;
  if (value < 7200) return `${(value / 60).toFixed(1)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}
const clock = (text) => (text ? new Date(text).toLocaleString() : "–");

// ---------------------------------------------------------------- the API

let token = sessionStorage.getItem("berth-token");
class NoToken extends Error {}

async function ask(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`/v1/${path}`, { headers });
  if (answer.status === 401) throw new NoToken();
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail || body.title || `HTTP ${answer.status}`);
  return body;
}

function login() {
  const field = h("input", { type: "password", name: "token", "aria-label": "token", autocomplete: "off" });
  return [h("h1", {}, "Who are you?"), h("form", {
    onsubmit: (event) => {
      event.preventDefault();
      token = field.value.trim();
      sessionStorage.setItem("berth-token", token);
      draw();
    },
  }, h("p", {}, "This service wants a token; the operator makes one with ", h("code", {}, "berth token create NAME"), "."),
  field, " ", h("button", { type: "submit" }, "Enter"))];
}

// ---------------------------------------------------------------- charts

function chart(times, series, { top = null, show = (v) => short(v) } = {}) {
  const [wide, high, left, low] = [640, 180, 46, 22];
  if (times.length < 2) return h("p", { class: "quiet" }, "a picture comes after two minutes");
  const peak = top ?? Math.max(1e-9, ...series.flatMap(([, values]) => values.map((v) => v ?? 0)));
  const x = (i) => left + ((wide - left - 6) * i) / (times.length - 1);
  const y = (v) => 8 + (high - low - 8) * (1 - Math.min(v / peak, 1));
  const drawn = series.map(([name, values], n) => {
    const d = values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)},${y(v ?? 0).toFixed(1)}`).join("");
    return h("path", { d, fill: "none", stroke: COLOURS[n % COLOURS.length], "stroke-width": 1.8 }, h("title", {}, name));
  });
  const stamp = (i) => new Date(1000 * times[i]).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const legend = h("div", { class: "quiet" }, series.map(([name], n) => {
    const mark = h("span", {}, "● ");
    mark.style.color = COLOURS[n % COLOURS.length];
    return h("span", {}, mark, `${name}  `);
  }));
  return h("div", {}, h("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img" },
    [0, 0.5, 1].map((part) => h("g", {},
      h("line", { class: "axis", x1: left, x2: wide - 6, y1: y(part * peak), y2: y(part * peak) }),
      h("text", { x: left - 6, y: y(part * peak) + 4, "text-anchor": "end" }, show(part * peak)))),
    h("text", { x: left, y: high - 6 }, stamp(0)),
    h("text", { x: wide - 6, y: high - 6, "text-anchor": "end" }, stamp(times.length - 1)), drawn), legend);
}

function interval(low, mean, high, [from, to]) {
  const x = (v) => 2 + (196 * (Math.min(Math.max(v, from), to) - from)) / (to - from || 1);
  return h("svg", { viewBox: "0 0 200 14", class: "interval" },
    h("line", { class: "axis", x1: 2, x2: 198, y1: 7, y2: 7 }),
    h("line", { x1: x(low), x2: x(high), y1: 7, y2: 7, stroke: "var(--accent)", "stroke-width": 3 }),
    h("circle", { cx: x(mean), cy: 7, r: 4, fill: "var(--accent)" }));
}

// ---------------------------------------------------------------- pages

function holders(jobs) {
  const found = new Map();
  for (const one of jobs) {
    for (const place of one.places) {
      if (!found.has(place.server)) found.set(place.server, []);
      found.get(place.server).push([one, place]);
    }
  }
  return found;
}

function serverCard(server, held) {
  const rows = Object.entries(server.capacity).map(([name, whole]) => {
    const all = amount(whole), used = all - amount(server.free[name] ?? "0");
    const part = all ? used / all : 0;
    return h("div", { class: "resource" }, h("span", {}, name),
      h("div", { class: "bar" }, h("span", { class: part > 0.99 ? "full" : "", width: percent(part) })),
      h("span", { class: "quiet" }, `${short(used)} / ${short(all)}`));
  });
  const state = server.state === "up" ? null : h("span", { class: "bad" }, ` ${server.state}`);
  return h("section", { class: `card server ${server.state === "up" ? "" : "away"}` },
    h("h2", {}, server.name, state, server.kept_for ? h("span", { class: "quiet" }, " kept for ", job(server.kept_for)) : null),
    rows, h("div", { class: "holders" }, (held ?? []).slice(0, 12).map(([one, place]) => [job(one.id), ` ×${place.tasks}  `]),
      (held ?? []).length > 12 ? `and ${held.length - 12} more` : null));
}

function serverCell(server, held) {
  const part = Math.max(0, ...Object.entries(server.capacity).map(([name, whole]) => {
    const all = amount(whole);
    return all ? 1 - amount(server.free[name] ?? "0") / all : 0;
  }));
  return h("div", {
    class: `cell ${server.state === "up" ? "" : "away"}`,
    background: `color-mix(in srgb, var(--accent) ${percent(part).replace(" ", "")}, var(--fill))`,
    title: `${server.name}: ${server.state}, ${percent(part)} of its scarcest resource held by ${(held ?? []).length} jobs`,
  });
}

async function cluster() {
  const [servers, running, waiting, policy] = await Promise.all([
    ask("servers"), ask("jobs?phase=running&phase=starting&phase=ending&limit=1000"),
    ask("jobs?phase=waiting&limit=1000"), ask("policy")]);
  const held = holders(running.jobs);
  const totals = new Map();
  for (const server of servers.filter((one) => one.state !== "lost")) {
    for (const [name, whole] of Object.entries(server.capacity)) {
      const [all, free] = totals.get(name) ?? [0, 0];
      totals.set(name, [all + amount(whole), free + amount(server.free[name] ?? "0")]);
    }
  }
  const more = (list) => `${list.jobs.length}${list.after !== null ? "+" : ""}`;
  const refused = Object.values(policy.refusals).reduce((a, b) => a + b, 0);
  return [h("h1", {}, "Cluster now"), h("div", { class: "cards" },
    number("servers", servers.filter((one) => one.state === "up").length, `of ${servers.length}`),
    number("running", more(running)), number("waiting", more(waiting)),
    [...totals].map(([name, [all, free]]) => number(name, percent(all ? 1 - free / all : 0), `of ${short(all)} held`)),
    number("policy", policy.policy, refused ? `${refused} decisions refused` : "no decision refused")),
  h("div", { class: servers.length > MANY ? "servers many" : "servers" },
    servers.map((one) => (servers.length > MANY ? serverCell : serverCard)(one, held.get(one.name))))];
}

async function queue() {
  const waiting = await ask("jobs?phase=waiting&limit=200");
  const now = Date.now();
  return [h("h1", {}, `Queue: ${waiting.jobs.length}${waiting.after !== null ? "+" : ""} waiting`), table([
    ["job", (one) => job(one.id)], ["type", (one) => one.type], ["user", (one) => one.user], ["queue", (one) => one.queue],
    ["tasks", (one) => String(Object.values(one.roles).reduce((sum, role) => sum + role.count, 0)), "right"],
    ["waits", (one) => seconds((now - new Date(one.submitted)) / 1000), "right"],
    ["asks for", (one) => Object.entries(one.roles).map(([name, role]) =>
      `${role.count} × ${Object.entries(role.resources).map(([k, v]) => `${v} ${k}`).join(", ") || name}`).join("; ")],
    ["why", (one) => h("a", { href: `#/job/${encodeURIComponent(one.id)}` }, one.reason || "explain")],
  ], waiting.jobs)];
}

async function history() {
  const [steps, shadow] = await Promise.all([ask("history"), ask("shadow")]);
  const times = steps.map((one) => one.time);
  const names = [...new Set(steps.flatMap((one) => Object.keys(one.used)))];
  return [h("h1", {}, "Since the service began"),
    card("Jobs a minute", chart(times, [["submitted", steps.map((s) => s.submitted)],
      ["started", steps.map((s) => s.started)], ["finished", steps.map((s) => s.finished)], ["failed", steps.map((s) => s.failed)]])),
    card("Held", chart(times, names.map((name) => [name, steps.map((s) => s.used[name])]), { top: 1, show: percent })),
    card("Waiting jobs", chart(times, [["waiting", steps.map((s) => s.waiting)]])),
    card("Mean wait of those that started", chart(times, [["wait", steps.map((s) => (s.started ? s.waits / s.started : 0))]],
      { show: seconds })),
    card("Slowest decision", chart(times, [["decision", steps.map((s) => s.slowest)]], { show: seconds })),
    card("Shadow", shadowText(shadow))];
}

function shadowText(shadow) {
  if (!shadow || !shadow.policy) {
    return h("p", { class: "quiet" }, "No candidate is tried. An operator sets one with: ", h("code", {}, "berth policy shadow NAME"));
  }
  return h("div", {}, h("p", {}, `Beside the policy that decides, ${shadow.policy} says what it would have done.`), h("pre", {}, shadow.text));
}

async function learned() {
  const lines = await ask("learned");
  const bounds = lines.flatMap((one) => [one.speed - (one.uncertainty ?? 0), one.speed + (one.uncertainty ?? 0)]);
  const range = [Math.min(0, ...bounds), Math.max(1, ...bounds)];
  return [h("h1", {}, "What was learned: how fast each type of job runs on each server"),
    h("p", { class: "quiet" }, "1 is as fast as was said, or as the first run of its type. Bars are 95 % intervals of the mean."),
    table([["type", (one) => one.type], ["server", (one) => one.server], ["runs", (one) => String(one.runs), "right"],
      ["speed", (one) => one.speed.toFixed(3), "right"],
      ["±", (one) => (one.uncertainty === null ? "?" : one.uncertainty.toFixed(3)), "right"],
      ["", (one) => interval(one.speed - (one.uncertainty ?? 0), one.speed, one.speed + (one.uncertainty ?? 0), range)],
    ], lines.slice(0, 500))];
}

async function decisions() {
  const found = (await ask("decisions?limit=100")).reverse();
  return [h("h1", {}, "Latest decisions"), table([
    ["#", (one) => String(one.number), "right"], ["when", (one) => clock(one.time)], ["by", (one) => one.by],
    ["took", (one) => seconds(one.seconds), "right"], ["waiting", (one) => String(one.waiting), "right"],
    ["started", (one) => one.starts.slice(0, 8).map((start) => [job(start.job), " "])],
    ["refused", (one) => h("span", { class: "bad" }, one.refused ?? "")],
  ], found)];
}

async function oneJob(id) {
  const name = encodeURIComponent(id);
  const [one, why] = await Promise.all([ask(`jobs/${name}`), ask(`jobs/${name}/explain`)]);
  const facts = { user: one.user, team: one.team, queue: one.queue, type: one.type, priority: one.priority,
    submitted: clock(one.submitted), started: clock(one.started), ended: clock(one.ended), attempt: one.attempt,
    reason: one.reason || "–" };
  return [h("h1", {}, one.id, " ", phase(one.phase)),
    card("Why", h("pre", {}, why.text)),
    card("Facts", h("dl", {}, Object.entries(facts).map(([key, value]) => [h("dt", {}, key), h("dd", {}, String(value))]))),
    card("Roles", table([["role", ([key]) => key], ["tasks", ([, role]) => `${role.minimum} to ${role.count}`],
      ["each takes", ([, role]) => Object.entries(role.resources).map(([k, v]) => `${v} ${k}`).join(", ")]], Object.entries(one.roles))),
    card("Places", table([["server", (p) => p.server], ["role", (p) => p.role], ["tasks", (p) => String(p.tasks), "right"]], one.places))];
}

// ---------------------------------------------------------------- which page, and when

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
    if (turn === drawing) {
      page.replaceChildren(...made.flat());
      status.textContent = "";
      status.className = "";
    }
  } catch (error) {
    if (turn !== drawing) return;
    if (error instanceof NoToken) {
      if (!page.querySelector("form")) page.replaceChildren(...login());
    } else {
      status.textContent = error instanceof TypeError ? "the service does not answer" : error.message;
      status.className = "bad";
    }
  }
  document.body.dataset.page = name || "cluster";
}

document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.body).backgroundColor === "rgb(18, 22, 29)";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("berth-theme", document.documentElement.dataset.theme);
});
const kept = localStorage.getItem("berth-theme");
if (kept) document.documentElement.dataset.theme = kept;
window.addEventListener("hashchange", draw);
setInterval(() => { if (!document.hidden && !page.querySelector("form")) draw(); }, REFRESH);
draw();
