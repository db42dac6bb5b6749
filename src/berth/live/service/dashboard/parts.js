// Building blocks of the pages: elements, tables, number formats and charts.
// Text from outside only ever becomes text nodes, never markup.

const SVG = new Set(["svg", "path", "line", "text", "circle", "rect", "title", "g"]);
const COLOURS = ["var(--accent)", "var(--good)", "var(--warn)", "var(--bad)", "var(--violet)"];

export function h(tag, attributes = {}, ...children) {
  const made = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const job = (id) => h("a", { href: `#/job/${encodeURIComponent(id)}` }, id);
export const phase = (name) => h("span", { class: `phase ${name}` }, name);
export const quiet = (...inside) => h("p", { class: "quiet" }, ...inside);
export const card = (title, ...inside) => h("section", { class: "card" }, h("h2", {}, title), ...inside);
export const number = (title, value, note) => h("section", { class: "card" }, h("div", { class: "quiet" }, title),
  h("div", { class: "number" }, String(value)), note ? h("div", { class: "quiet note" }, note) : null);

export function table(columns, rows, nothing = "nothing here yet") {
  if (!rows.length) return quiet(nothing);
  return h("div", { class: "scroll", tabindex: 0 }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map(([title, , kind]) => h("th", { class: kind, scope: "col" }, title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row))))))));
}

// ---------------------------------------------------------------- number formats

const SIZES = { m: 1e-3, "": 1, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50 };
export function amount(text) {
  const found = /^([\d.]+)([A-Za-z]*)$/.exec(text ?? "0");
  return found ? Number(found[1]) * (SIZES[found[2]] ?? 1) : 0;
}
export function short(value) {
  for (const suffix of ["Pi", "Ti", "Gi", "Mi"]) {
    const much = value / SIZES[suffix];
    if (much >= 4 || (much >= 1 && Number.isInteger(much))) return `${Number(much.toFixed(much < 10 ? 1 : 0))}${suffix}`;
  }
  return Number(value.toFixed(2)).toString();
}
export const percent = (part) => `${(100 * part).toFixed(0)} %`;
export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 1) return `${(1000 * value).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 7200) return `${(value / 60).toFixed(0)} min`;
  if (value < 2 * 86400) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86400).toFixed(1)} d`;
}
export const signed = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Number(Math.abs(value).toPrecision(3))}`;
const WHEN = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
export const clock = (text) => (text ? new Date(text).toLocaleString([], WHEN) : "–");
export const several = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
export const asks = (roles) => Object.entries(roles).map(([name, role]) =>
  `${role.count} × ${Object.entries(role.resources).map(([k, v]) => `${v} ${k}`).join(", ") || name}`).join("; ");

// ---------------------------------------------------------------- charts

// Lines skip null values.
export function chart(title, times, series, { top = null, show = short, width = 560 } = {}) {
  if (times.length < 2) return quiet("the chart appears after two minutes");
  const [wide, high, left, low] = [Math.max(280, Math.min(width, 560)), 170, 52, 22];
  const peak = top ?? (Math.max(0, ...series.flatMap(([, values]) => values.map((v) => v ?? 0))) || 1);
  const x = (i) => left + ((wide - left - 6) * i) / (times.length - 1);
  const y = (v) => 8 + (high - low - 8) * (1 - Math.min(v / peak, 1));
  const lines = series.map(([name, values], n) => {
    const known = values.map((v, i) => [i, v]).filter(([, v]) => v !== null);
    const d = known.map(([i, v], k) => `${k ? "L" : "M"}${x(i).toFixed(1)},${y(v).toFixed(1)}`).join("");
    return h("path", { d: d || "M0,0", class: "line", stroke: COLOURS[n % COLOURS.length] }, h("title", {}, name));
  });
  const stamp = (i) => new Date(1000 * times[i]).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const legend = series.length > 1 && h("div", { class: "legend" }, series.map(([name], n) =>
    h("span", {}, h("i", { style: { background: COLOURS[n % COLOURS.length] } }), name)));
  return h("div", {}, h("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": title },
    [0, 0.5, 1].map((part) => h("g", {},
      h("line", { class: "axis", x1: left, x2: wide - 6, y1: y(part * peak), y2: y(part * peak) }),
      h("text", { x: left - 6, y: y(part * peak) + 4, "text-anchor": "end" }, show(part * peak)))),
    h("text", { x: left, y: high - 6 }, stamp(0)),
    h("text", { x: wide - 6, y: high - 6, "text-anchor": "end" }, stamp(times.length - 1)), lines), legend || null);
}

// A mean with its interval on a scale, and a mark at break-even.
export function interval({ mean, low, high }, [from, to], mark, kind = "") {
  const x = (v) => 5 + (190 * (Math.min(Math.max(v, from), to) - from)) / (to - from || 1);
  return h("svg", { viewBox: "0 0 200 16", class: `interval ${kind}`, role: "img",
    "aria-label": low === null ? `${mean}, no interval yet` : `${mean}, from ${low} to ${high}` },
  h("line", { class: "axis", x1: 5, x2: 195, y1: 8, y2: 8 }),
  h("line", { class: "mark", x1: x(mark), x2: x(mark), y1: 1, y2: 15 }),
  low === null ? null : h("line", { class: "range", x1: x(low), x2: x(high), y1: 8, y2: 8 }),
  h("circle", { class: low === null ? "unsure" : "sure", cx: x(mean), cy: 8, r: 4 }));
}
