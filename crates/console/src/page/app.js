// The page of the console. All request data is rendered as text, never as markup; styles are classes, so that the
// content security policy needs no exception.

const ROW = 28; // As in style.css.
const OVERSCAN = 12;
const $ = (id) => document.getElementById(id);

/** An element with properties and children; strings become text. */
function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** A badge with the color of its meaning. */
const tag = (word) => h("span", { class: `tag ${String(word).replaceAll(" ", "-")}` }, word);
const ms = (value) => (value === undefined || value === null ? "" : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
const clock = (time) => {
  const date = new Date(time);
  return `${date.toTimeString().slice(0, 8)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
};
const who = (by) => (by ? by.name : "");

// The client of the server.

let token = "";
class Refused extends Error {}

async function ask(path, body) {
  const response = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
  });
  if (response.ok) return response;
  const { message } = await response.json().catch(() => ({ message: response.statusText }));
  if (response.status === 401 || response.status === 403) throw new Refused(message);
  throw new Error(message);
}

const say = (text, isBad) => {
  $("state").textContent = text;
  $("state").className = isBad ? "bad" : "";
};

// The list.

const state = { rows: [], shown: [], waiting: [], selected: 0, paused: false, lost: 0, oldest: 1, limit: 10000, view: "requests", tests: [], sees: true };
const QUICK = [["All", ""], ["Denied", "verdict:denied"], ["Failed", "failed:true"], ["Changed", "changed:true"]];

const FIELDS = {
  verdict: (row) => row.verdict, op: (row) => row.operation, res: (row) => (row.subresource ? `${row.resource}/${row.subresource}` : row.resource),
  kind: (row) => row.kind, ns: (row) => row.namespace, name: (row) => row.name, user: (row) => row.user, by: (row) => who(row.by),
  hook: (row) => row.names.join(" "), failed: (row) => String(row.failed), changed: (row) => String(row.changed), dry: (row) => String(row.dryRun),
};

/** Parses a filter such as `ns:shop -user:ann ms:>10 text` into predicates on rows. */
function parse(text) {
  return text.trim().split(/\s+/).filter(Boolean).map((word) => {
    const isNot = word.startsWith("-") && word.length > 1;
    if (isNot) word = word.slice(1);
    const at = word.indexOf(":");
    const field = at > 0 ? word.slice(0, at) : "";
    const value = word.slice(at + 1).toLowerCase();
    let test;
    if (field === "ms") {
      const [, sign, number] = /^([<>]?)([\d.]+)$/.exec(value) ?? [];
      test = (row) => number === undefined || (sign === "<" ? row.ms < +number : row.ms >= +number);
    } else if (FIELDS[field]) {
      test = (row) => FIELDS[field](row).toLowerCase().includes(value);
    } else {
      const all = word.toLowerCase();
      test = (row) => row.search.includes(all);
    }
    return isNot ? (row) => !test(row) : test;
  });
}

function passes(row) {
  return state.tests.every((test) => test(row));
}

function prepare(row) {
  row.search = [row.n, row.operation, row.resource, row.subresource, row.kind, row.namespace, row.name, row.user, row.verdict, who(row.by), row.message, ...row.names].join(" ").toLowerCase();
  return row;
}

/** Adds rows, which come oldest first. */
function take(rows) {
  if (state.paused) {
    state.waiting.push(...rows);
    if (state.waiting.length > state.limit) state.waiting.splice(0, state.waiting.length - state.limit);
    count();
    return;
  }
  const fresh = rows.map(prepare);
  state.rows.push(...fresh);
  if (state.rows.length > state.limit) state.rows.splice(0, state.rows.length - state.limit);
  const before = state.shown.length;
  const shown = fresh.filter(passes);
  state.shown.push(...shown);
  if (state.shown.length > state.limit) state.shown.splice(0, state.shown.length - state.limit);
  // Keeps the scroll position unless the list is at the top.
  const list = $("rows");
  if (list.scrollTop > ROW && before > 0) list.scrollTop += shown.length * ROW;
  schedule();
}

function forget(oldest) {
  state.oldest = oldest;
  const at = state.rows.findIndex((row) => row.n >= oldest);
  state.rows.splice(0, at < 0 ? state.rows.length : at);
  const shown = state.shown.findIndex((row) => row.n >= oldest);
  state.shown.splice(0, shown < 0 ? state.shown.length : shown);
}

function filter() {
  state.tests = parse($("filter").value);
  state.shown = state.rows.filter(passes);
  for (const chip of $("chips").children) chip.setAttribute("aria-pressed", String(chip.dataset.filter === $("filter").value.trim()));
  $("rows").scrollTop = 0;
  schedule();
}

let isScheduled = false;
function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    draw();
  });
}

const pool = [];
function cell() {
  const row = h("div", { class: "row", role: "option" }, ...Array.from({ length: 8 }, () => h("span")));
  row.lastChild.className = "right";
  row.addEventListener("click", () => select(Number(row.dataset.n), true));
  $("canvas").append(row);
  return row;
}

/** Draws the rows in view, the newest on top. */
function draw() {
  const list = $("rows");
  const total = state.shown.length;
  $("canvas").style.height = `${total * ROW}px`;
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - OVERSCAN);
  const last = Math.min(total, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + OVERSCAN);
  for (let at = 0; at < Math.max(last - first, pool.length); at++) {
    if (at >= last - first) {
      pool[at].hidden = true;
      continue;
    }
    const element = (pool[at] ??= cell());
    const data = state.shown[total - 1 - (first + at)];
    element.hidden = false;
    element.style.top = `${(first + at) * ROW}px`;
    element.setAttribute("aria-selected", String(data.n === state.selected));
    if (element.dataset.n === String(data.n)) continue;
    element.dataset.n = data.n;
    const [time, verdict, operation, resource, object, user, by, took] = element.children;
    time.textContent = clock(data.time);
    verdict.replaceChildren(tag(data.verdict === "allowed" && data.failed ? "failed open" : data.verdict === "allowed" && data.changed ? "patched" : data.verdict));
    operation.textContent = data.operation + (data.dryRun ? " (dry)" : "");
    resource.textContent = data.subresource ? `${data.resource}/${data.subresource}` : data.resource;
    object.textContent = data.namespace ? `${data.namespace}/${data.name}` : data.name;
    object.title = object.textContent;
    user.textContent = data.user;
    by.textContent = data.verdict === "denied" ? who(data.by) : data.names.length ? `${data.names.length} asked` : "";
    by.title = data.message ?? data.names.join(", ");
    took.textContent = ms(data.ms);
  }
  count();
}

function count() {
  const waiting = state.waiting.length ? `, ${state.waiting.length} waiting` : "";
  const lost = state.lost ? `, ${state.lost} not recorded` : "";
  $("count").textContent = `${state.shown.length} of ${state.rows.length}${waiting}${lost}`;
}

function reveal(at) {
  const list = $("rows");
  const top = (state.shown.length - 1 - at) * ROW;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
}

function move(by) {
  if (!state.shown.length) return;
  const at = state.shown.findIndex((row) => row.n === state.selected);
  const next = at < 0 ? state.shown.length - 1 : Math.min(state.shown.length - 1, Math.max(0, at - by));
  reveal(next);
  select(state.shown[next].n, !$("detail").hidden);
}

function nextDenied() {
  const at = state.shown.findIndex((row) => row.n === state.selected);
  const before = at < 0 ? state.shown : state.shown.slice(0, at);
  const index = before.findLastIndex((row) => row.verdict === "denied");
  if (index < 0) return say("no other denied request");
  reveal(index);
  select(state.shown[index].n, true);
}

function select(number, isOpened) {
  state.selected = number;
  $("rows").setAttribute("aria-label", `Requests, ${number} selected`);
  schedule();
  if (isOpened) open(number);
}

// One request.

let opened = null;
async function open(number) {
  try {
    const detail = await (await ask(`/api/requests/${number}`)).json();
    if (state.selected !== number) return;
    opened = detail;
    showDetail(detail, "Timeline");
  } catch (error) {
    showProblem($("detail"), error);
  }
  $("detail").hidden = false;
  document.querySelector("#requests .list").classList.add("narrow");
  schedule();
}

function closeDetail() {
  $("detail").hidden = true;
  opened = null;
  document.querySelector("#requests .list").classList.remove("narrow");
  $("rows").focus();
  schedule();
}

function showProblem(element, error) {
  element.replaceChildren(h("p", { class: "message bad", role: "alert" }, error.message));
}

const VIEWS = { Timeline: timeline, Changes: allChanges, Object: blamed, JSON: raw };

function showDetail(detail, view) {
  const { request } = detail;
  const denied = detail.steps.find((step) => step.denied);
  const resource = request.subResource ? `${request.resource.resource}/${request.subResource}` : request.resource.resource;
  const object = request.namespace ? `${request.namespace}/${request.name || "(generated)"}` : request.name || "(generated)";
  const facts = [
    ["User", `${request.userInfo.username}${request.userInfo.groups?.length ? ` (${request.userInfo.groups.join(", ")})` : ""}`],
    ["Kind", `${request.kind.group ? `${request.kind.group}/` : ""}${request.kind.version} ${request.kind.kind}`],
    ["Time", `${clock(detail.time)}, ${ms(detail.steps.reduce((sum, step) => sum + step.ms, 0))} ms in admission`],
    ["Dry run", request.dryRun ? "yes" : ""],
    ["Warnings", detail.warnings.join("; ")],
  ].filter(([, value]) => value);
  $("detail").replaceChildren(...[
    h("h2", null, tag(denied ? "denied" : "allowed"), `#${detail.n} ${request.operation} ${resource}`, h("span", { class: "faint" }, object), h("span", { class: "spring" }), h("button", { onclick: closeDetail, title: "Close (Esc)" }, "Close")),
    denied?.status && h("div", { class: "verdict", id: "verdict" }, denied.by && h("strong", null, `${denied.by.type} ${denied.by.name}: `), `${denied.status.code} ${denied.status.message}`),
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    detail.objectsOmitted && h("p", { class: "faint" }, "Objects not shown: too large, or access denied."),
    h("div", { class: "tabs", role: "tablist" }, Object.keys(VIEWS).map((name) => h("button", { role: "tab", "aria-selected": String(name === view), onclick: () => showDetail(detail, name) }, name)),
      h("span", { class: "spring" }), state.sees && h("button", { onclick: () => capture([detail.n]), title: "Download as an AdmissionReview" }, "Download"), state.sees && h("button", { onclick: () => play(detail.n, "object", {}) }, "Playground")),
    h("div", { role: "tabpanel" }, VIEWS[view](detail)),
  ].filter(Boolean));
}

/** A bar from `from` to `to` of `total`. */
function lane(from, to, total, result) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 1000 8");
  svg.setAttribute("preserveAspectRatio", "none");
  const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const scale = 1000 / Math.max(total, 0.001);
  bar.setAttribute("x", String(from * scale));
  bar.setAttribute("width", String(Math.max(6, (to - from) * scale)));
  bar.setAttribute("height", "8");
  bar.setAttribute("class", String(result).replaceAll(" ", "-"));
  svg.append(bar);
  return h("span", { class: "lane", "aria-hidden": "true" }, svg);
}

const LOUD = ["denied", "failed"];

/** A step of the request, which expands to its details. */
function item({ title, type, result, from, took, total, body, quiet }) {
  const isOpen = LOUD.includes(result);
  const content = h("div", { class: "body" }, body);
  content.hidden = !isOpen;
  const button = h("button", { "aria-expanded": String(isOpen), "data-name": title, "data-type": type, onclick: () => {
    content.hidden = !content.hidden;
    button.setAttribute("aria-expanded", String(!content.hidden));
  } }, h("span", { class: "name", title }, title, " ", h("span", { class: "faint" }, type)), tag(result), lane(from, from + (took ?? 0), total, result), h("span", { class: "right" }, took === undefined || took === null ? "" : `${ms(took)} ms`));
  return h("div", { class: quiet ? "item quiet" : "item" }, button, content);
}

function timeline(detail) {
  const total = detail.steps.reduce((sum, step) => sum + step.ms, 0);
  let now = 0;
  return detail.steps.map((step) => {
    const start = now;
    const parts = [];
    let round = 0;
    const quiet = [];
    for (const run of step.runs) {
      if (step.step === "mutating" && run.round !== round) {
        round = run.round;
        if (step.runs.some((other) => other.round > 1)) parts.push(h("div", { class: "round" }, `Round ${round}`));
      }
      let at = now;
      for (const policy of run.policies) parts.push(policyItem(policy, at, run.ms, total, detail));
      for (const hook of run.hooks) {
        parts.push(hookItem(hook, at, total, run, detail));
        // Mutating webhooks are called in sequence, validating ones in parallel.
        if (step.step === "mutating") at += hook.ms ?? 0;
      }
      if (run.denied && !run.hooks.length && !run.policies.length) {
        parts.push(item({ title: run.plugin, type: "plugin", result: "denied", from: now, took: run.ms, total, body: [h("p", { class: "message" }, step.status?.message), notes(run)] }));
      } else if (run.changes.length) {
        parts.push(item({ title: run.plugin, type: "plugin", result: "patched", from: now, took: run.ms, total, body: [diff(run.changes), notes(run)] }));
      } else if (!run.hooks.length && !run.policies.length) {
        quiet.push(run.plugin);
      }
      now += run.ms;
    }
    now = start + step.ms;
    return h("div", { class: "step" }, h("h3", null, `${step.step}, ${ms(step.ms)} ms`), parts.length ? parts : h("p", { class: "faint" }, "No webhook, policy or plugin applied."),
      quiet.length ? h("p", { class: "faint" }, `Ran without effect: ${[...new Set(quiet)].join(", ")}`) : null);
  });
}

function notes(run) {
  return [
    run.warnings?.length ? h("p", { class: "message" }, `Warnings: ${run.warnings.join("; ")}`) : null,
    run.annotations?.length ? h("dl", { class: "facts" }, run.annotations.map(([key, value]) => [h("dt", null, key), h("dd", null, value)])) : null,
  ];
}

/** An expression that can be evaluated again. */
function expression(text, result, number, options) {
  return [h("code", { class: result === "denied" ? "expression denied" : "expression" }, text), state.sees && h("button", { onclick: () => play(number, text, options) }, "Evaluate")];
}

function condition(told, number, options) {
  if (!told) return null;
  const name = told.name ? ` ${told.name}` : "s";
  return h("div", { class: "outcome" }, `matchCondition${name}: ${told.verdict}`, told.error && h("p", { class: "message bad" }, told.error), told.expression && expression(told.expression, "", number, options));
}

function hookItem(hook, from, total, run, detail) {
  const result = hook.result;
  const labels = run.namespaceLabels ? Object.entries(run.namespaceLabels).map(([key, value]) => `${key}=${value}`).join(", ") : "";
  const body = [
    hook.message && h("p", { class: LOUD.includes(result) || result === "failed open" ? "message bad" : "message" }, hook.code ? `${hook.code} ` : "", hook.message),
    hook.why && h("p", { class: "message" }, hook.why, hook.why.startsWith("namespaceSelector") && labels ? h("span", { class: "faint" }, ` (labels: ${labels})`) : null),
    condition(hook.condition, detail.n, {}),
    h("dl", { class: "facts" }, [
      ["Configuration", h("button", { onclick: () => find(hook.name) }, `${hook.configuration} [${hook.index}]`)],
      ["failurePolicy", hook.failurePolicy],
      ["Timeout", hook.timeoutSeconds ? `${hook.timeoutSeconds} s${hook.allowedMs ? `, ${ms(hook.allowedMs)} ms left when called` : ""}` : ""],
      ["Call", hook.phases?.length ? hook.phases.map(([name, took]) => `${name} ${ms(took)}`).join(" · ") + " ms" : ""],
      ["uid", hook.uid],
      ["Warnings", hook.warnings?.join("; ")],
      ...Object.entries(hook.annotations ?? {}),
    ].filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    hook.changes?.length ? [h("h3", null, "Changes"), diff(hook.changes)] : null,
    hook.patch && !hook.changes?.length ? h("p", { class: "faint" }, "The patch has no effect.") : null,
  ];
  return item({ title: hook.name, type: "webhook", result, from, took: hook.ms, total, body, quiet: result === "skipped" || result === "not reinvoked" });
}

function policyItem(policy, from, took, total, detail) {
  const options = { policy: policy.name };
  const body = [
    policy.failure && h("p", { class: "message bad" }, policy.failure),
    policy.why && h("p", { class: "message" }, policy.why),
    policy.bindings.map((binding) => h("div", { class: "outcome" },
      h("div", null, "Binding ", h("strong", null, binding.name), " ", binding.actions?.length ? h("span", { class: "faint" }, binding.actions.join(", ")) : null, " ", tag(binding.result)),
      binding.failure && h("p", { class: "message bad" }, binding.failure),
      binding.why && h("p", { class: "message" }, binding.why),
      binding.evaluations.map((evaluation) => [
        evaluation.param && h("p", { class: "faint" }, `with ${evaluation.param.namespace ? `${evaluation.param.namespace}/` : ""}${evaluation.param.name}`),
        condition(evaluation.condition, detail.n, { ...options, kind: policy.kind }),
        evaluation.outcomes.map((outcome) => h("div", { class: "outcome" },
          h("div", null, h("code", null, `${outcome.list}[${outcome.index}]`), " ", tag(outcome.message ? outcome.enforcement.replace("deny", "denied").replace("warn", "warned").replace("audit", "audited").replace("allow", "failed open") : "allowed"), " ", h("span", { class: "faint" }, `${ms(outcome.ms)} ms`)),
          outcome.expression && expression(outcome.expression, outcome.enforcement === "deny" ? "denied" : "", detail.n, { ...options, isFinal: policy.kind === "ValidatingAdmissionPolicy" }),
          outcome.message && h("p", { class: outcome.enforcement === "deny" ? "message bad" : "message" }, outcome.message))),
        evaluation.changes?.length ? diff(evaluation.changes) : null,
      ]))),
    h("button", { onclick: () => find(policy.name) }, "Show the policy"),
  ];
  const evaluated = policy.bindings.some((binding) => binding.evaluations.length);
  return item({ title: policy.name, type: "policy", result: policy.result, from, took: evaluated ? took : undefined, total, body, quiet: !evaluated });
}

/** Values as YAML, whose lines have the JSON pointer of their field. */
function lines(value, indent = "", path = "", out = []) {
  const escape = (key) => String(key).replaceAll("~", "~0").replaceAll("/", "~1");
  const plain = (text) => (/^[\w./@%+-][\w ./@%+:-]*$/.test(text) && !/: |:$|^(true|false|null|yes|no|on|off|~|-|[\d.+-].*)$/i.test(text) ? text : JSON.stringify(text));
  const scalar = (one) => (typeof one === "string" ? plain(one) : JSON.stringify(one));
  const isTree = (one) => one !== null && typeof one === "object" && (Array.isArray(one) ? one.length : Object.keys(one).length) > 0;
  const add = (prefix, below, one, pointer) => {
    if (!isTree(one)) out.push([`${prefix}${scalar(one)}`, pointer]);
    else {
      out.push([prefix.trimEnd(), pointer]);
      lines(one, below, pointer, out);
    }
  };
  if (Array.isArray(value)) {
    value.forEach((one, at) => {
      const pointer = `${path}/${at}`;
      if (isTree(one) && !Array.isArray(one)) {
        const inner = lines(one, `${indent}  `, pointer, []);
        inner[0][0] = `${indent}- ${inner[0][0].trimStart()}`;
        out.push(...inner);
      } else add(`${indent}- `, `${indent}  `, one, pointer);
    });
  } else if (value !== null && typeof value === "object") {
    for (const [key, one] of Object.entries(value)) add(`${indent}${plain(key)}: `, `${indent}  `, one, `${path}/${escape(key)}`);
  } else out.push([`${indent}${scalar(value)}`, path]);
  return out;
}

const text = (value) => lines(value).map(([line]) => line).join("\n");

function diff(changes) {
  return h("div", { class: "diff" }, changes.map((change) => [
    h("div", { class: "path" }, change.path || "/"),
    "before" in change ? h("pre", { class: "minus" }, text(change.before).replace(/^/gm, "- ")) : null,
    "after" in change ? h("pre", { class: "plus" }, text(change.after).replace(/^/gm, "+ ")) : null,
  ]));
}

/** All changed fields, with the webhook or policy that changed them. */
function allChanges(detail) {
  const parts = [];
  const add = (name, type, round, changes) => {
    if (changes?.length) parts.push(h("h3", null, `${type} ${name}`, round > 1 ? `, round ${round}` : ""), diff(changes));
  };
  for (const step of detail.steps) {
    for (const run of step.runs) {
      add(run.plugin, "plugin", run.round, run.changes);
      for (const policy of run.policies) for (const binding of policy.bindings) for (const evaluation of binding.evaluations) add(policy.name, "policy", run.round, evaluation.changes);
      for (const hook of run.hooks) add(hook.name, "webhook", run.round, hook.changes);
    }
  }
  return parts.length ? parts : h("p", { class: "faint" }, "No changes.");
}

const MAX_LINES = 5000;

/** The object, with the webhook or policy that set each field beside it. */
function blamed(detail) {
  const object = detail.finalObject ?? detail.object ?? detail.oldObject;
  if (!object) return h("p", { class: "faint" }, "No object.");
  const author = (pointer) => {
    for (let path = pointer; ; path = path.slice(0, path.lastIndexOf("/"))) {
      if (detail.blame?.[path]) return detail.blame[path];
      if (!path) return null;
    }
  };
  const { managedFields, ...metadata } = object.metadata ?? {};
  const shown = { ...object, ...(object.metadata ? { metadata } : {}) };
  const all = lines(shown);
  return [
    h("div", { class: "source", id: "source" }, all.slice(0, MAX_LINES).map(([line, pointer]) => {
      const by = author(pointer);
      return h("div", { class: by ? "blamed" : "" }, h("pre", null, line), h("span", { class: "by" }, by ? `${by.type} ${by.name}${by.round > 1 ? `, round ${by.round}` : ""}` : ""));
    })),
    h("p", { class: "faint" }, [all.length > MAX_LINES && `${all.length - MAX_LINES} more lines. `, managedFields && "managedFields are not shown. ", Object.keys(detail.blame ?? {}).length ? "Fields set by admission are colored." : "Admission set no field."].filter(Boolean).join("")),
  ];
}

function raw(detail) {
  return h("div", { class: "source" }, h("pre", null, JSON.stringify(detail, null, 2)));
}

function save(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function capture(numbers) {
  try {
    const content = await (await ask("/api/capture", { requests: numbers })).text();
    const kept = content.split("\n").length - 1;
    save(numbers.length === 1 ? `request-${numbers[0]}.json` : "requests.jsonl", content, "application/json");
    say(`downloaded ${kept} of ${numbers.length}`);
  } catch (error) {
    say(error.message, true);
  }
}

// Webhooks and policies.

let registered = [];
let wanted = "";
const key = (row) => `${row.kind}/${row.configuration ?? ""}/${row.name}`;
async function loadRegistered() {
  try {
    registered = (await (await ask("/api/registered")).json()).rows;
    $("policies").replaceChildren(...registered.filter((row) => row.type === "policy").map((row) => h("option", { value: row.name })));
    for (const row of registered) if (row.name === wanted) openRows.add(key(row));
    wanted = "";
    drawRegistered();
  } catch (error) {
    showProblem($("table"), error);
  }
}

const openRows = new Set();

function drawRegistered() {
  const text = $("search").value.trim().toLowerCase();
  const rows = registered.filter((row) => `${row.name} ${row.configuration ?? ""} ${row.kind}`.toLowerCase().includes(text));
  if (!rows.length) {
    $("table").replaceChildren(h("p", { class: "faint" }, registered.length ? "No matches." : "No webhooks or policies registered."));
    return;
  }
  const headers = [["#", "number"], ["Phase"], ["Name"], ["Health"], ["Calls", "number"], ["Rejected", "number"], ["Failed", "number"], ["Changed", "number"], ["p50 ms", "number"], ["p95 ms", "number"], ["On failure"], ["Findings"]];
  const part = (count, calls) => (calls ? `${count} (${((100 * count) / calls).toFixed(count && count < calls ? 1 : 0)} %)` : "");
  $("table").replaceChildren(h("table", null,
    h("thead", null, h("tr", null, headers.map(([name, kind]) => h("th", { class: kind }, name)))),
    h("tbody", null, rows.map((row) => {
      const { counts, findings } = row;
      const isOpen = openRows.has(key(row));
      const by = (severity) => findings.filter((finding) => finding.severity === severity).length;
      const cells = h("tr", { class: isOpen ? "open" : "" },
        h("td", { class: "number" }, row.order), h("td", null, row.phase),
        h("td", null, h("button", { class: "name", "aria-expanded": String(isOpen), "data-name": row.name, onclick: () => {
          if (isOpen) openRows.delete(key(row));
          else openRows.add(key(row));
          drawRegistered();
        } }, row.name), h("div", { class: "faint" }, row.type === "webhook" ? `${row.configuration} → ${row.address}` : `policy, ${row.bindings.length} binding${row.bindings.length === 1 ? "" : "s"}`)),
        h("td", null, tag(counts.health)), h("td", { class: "number" }, counts.calls), h("td", { class: "number" }, part(counts.denied, counts.calls)), h("td", { class: "number" }, part(counts.failed, counts.calls)), h("td", { class: "number" }, part(counts.changed, counts.calls)),
        h("td", { class: "number" }, counts.p50Ms === null ? "" : `≤ ${ms(counts.p50Ms)}`), h("td", { class: "number" }, counts.p95Ms === null ? "" : `≤ ${ms(counts.p95Ms)}`),
        h("td", null, `${row.failurePolicy ?? ""}${row.timeoutSeconds ? `, ${row.timeoutSeconds} s` : ""}`),
        h("td", null, by("error") ? tagged("error", by("error")) : null, " ", by("warning") ? tagged("warning", by("warning")) : null, " ", by("note") ? tagged("note", by("note")) : null));
      return isOpen ? [cells, h("tr", null, h("td", { colspan: String(headers.length) }, rowDetail(row)))] : cells;
    }))));
}

const tagged = (severity, count) => h("span", { class: `tag ${severity}` }, `${count} ${severity}${count > 1 ? "s" : ""}`);

function rowDetail(row) {
  const { name, type, order, phase, counts, findings, configuration, kind, address, ...rest } = row;
  const known = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null && !(Array.isArray(value) && !value.length)));
  return [
    counts.lastFailure && h("p", { class: "message bad" }, `Last failure: ${counts.lastFailure}`),
    findings.map((finding) => h("div", { class: `finding ${finding.severity}` }, h("strong", null, `${finding.rule} ${finding.title}`), h("div", null, finding.path && h("code", null, finding.path), " ", finding.message), h("div", { class: "faint" }, finding.advice))),
    h("div", { class: "source" }, h("pre", null, text(known))),
    h("button", { onclick: () => { $("filter").value = `hook:${name}`; filter(); show("requests"); } }, "Show its requests"),
  ];
}

function find(name) {
  $("search").value = name;
  wanted = name;
  show("registered");
}

// The playground.

function play(number, expression, { policy = "", isFinal = false }) {
  $("subject").value = number;
  $("expression").value = expression;
  $("mode").value = policy ? "policy" : "condition";
  $("policy").value = policy;
  $("final").checked = isFinal;
  show("playground");
  evaluate();
}

async function evaluate() {
  const question = { request: Number($("subject").value), expression: $("expression").value, asPolicy: $("mode").value === "policy", policy: $("policy").value.trim(), finalObject: $("final").checked };
  try {
    question.params = JSON.parse($("params").value.trim() || "null");
  } catch (error) {
    return showProblem($("answer"), new Error(`params: ${error.message}`));
  }
  try {
    showAnswer(await (await ask("/api/cel", question)).json(), question.expression);
  } catch (error) {
    showProblem($("answer"), error);
  }
}

function showAnswer(answer, expression) {
  if (answer.issues) {
    $("answer").replaceChildren(...answer.issues.map((issue) => {
      const at = issue.at ?? 0;
      const end = at + (/^[\w.]+|^./s.exec(expression.slice(at))?.[0].length ?? 0);
      return h("div", { class: "outcome" }, h("p", { class: "message bad" }, issue.message), h("code", { class: "expression" }, expression.slice(0, at), h("mark", null, expression.slice(at, end) || " "), expression.slice(end)));
    }));
    return;
  }
  const isError = "error" in answer;
  $("answer").replaceChildren(
    h("p", { class: isError ? "result bad" : "result", id: "result" }, isError ? answer.error : answer.value, " ", h("span", { class: "faint" }, `${answer.type}, cost ${answer.cost}`)),
    h("table", { class: "steps" }, h("thead", null, h("tr", null, h("th", null, "Part"), h("th", null, "Value"), h("th", { class: "number" }, "Cost"))),
      h("tbody", null, answer.steps.map((step) => h("tr", null, h("td", null, "  ".repeat(Math.min(step.depth, 12)), step.text), h("td", { class: "error" in step ? "bad" : "" }, step.error ?? step.value), h("td", { class: "number" }, step.cost))))),
    answer.omitted ? h("p", { class: "faint" }, `${answer.omitted} more parts`) : "",
  );
}

// The whole page.

function show(view) {
  state.view = view;
  for (const button of document.querySelectorAll("nav button")) button.setAttribute("aria-selected", String(button.dataset.view === view));
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== view;
  if (view === "registered") loadRegistered();
  if (view === "requests") {
    schedule();
    $("rows").focus();
  }
  if (view === "playground") {
    if (!registered.length) loadRegistered();
    if (!$("subject").value && state.selected) $("subject").value = state.selected;
    $("expression").focus();
  }
}

function theme(next) {
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  $("theme").textContent = next ? `Theme: ${next}` : "Theme: system";
  localStorage.setItem("theme", next);
}

function nextTheme() {
  const order = ["", "light", "dark"];
  theme(order[(order.indexOf(document.documentElement.dataset.theme ?? "") + 1) % order.length]);
}

function pause() {
  state.paused = !state.paused;
  $("pause").setAttribute("aria-pressed", String(state.paused));
  $("pause").textContent = state.paused ? "Resume" : "Pause";
  if (!state.paused) {
    const waiting = state.waiting;
    state.waiting = [];
    take(waiting);
  }
}

function keys(event) {
  if (event.ctrlKey && event.key === "Enter" && state.view === "playground") return evaluate();
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isTyping = event.target.matches("input, textarea, select");
  if (event.key === "Escape") {
    if (isTyping) event.target.blur();
    else if (state.view === "requests" && !$("detail").hidden) closeDetail();
    return;
  }
  if (isTyping) {
    if (event.key === "Enter" && event.target.id === "filter") $("rows").focus();
    return;
  }
  const isList = state.view === "requests";
  const act = {
    1: () => show("requests"), 2: () => show("registered"), 3: () => show("playground"),
    "?": () => $("keys").showModal(), t: nextTheme,
    j: () => isList && move(1), k: () => isList && move(-1), ArrowDown: () => isList && move(1), ArrowUp: () => isList && move(-1),
    n: () => isList && nextDenied(), p: pause, d: () => isList && capture(state.shown.map((row) => row.n)),
    "/": () => (isList ? $("filter") : $("search")).focus(),
    Enter: () => isList && event.target.id === "rows" && state.selected && open(state.selected),
  }[event.key];
  if (!act) return;
  if (event.key === "Enter" && event.target.id !== "rows") return;
  event.preventDefault();
  act();
}

/** Streams the requests, and reconnects when the connection ends. */
async function follow() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
    try {
      const after = Math.max(state.rows.at(-1)?.n ?? 0, state.waiting.at(-1)?.n ?? 0);
      const response = await ask(`/api/stream?after=${after}`);
      say("live");
      pause = 500;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n");
        rest = parts.pop();
        const news = parts.filter(Boolean).map((line) => JSON.parse(line));
        const rows = news.filter((one) => "n" in one);
        for (const beat of news.filter((one) => "lost" in one)) {
          state.lost = beat.lost;
          forget(beat.oldest);
        }
        if (rows.length) take(rows);
      }
      say("reconnecting", true);
    } catch (error) {
      if (error instanceof Refused) return login(error.message);
      say("not connected", true);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function login(why) {
  $("why").textContent = why ?? "";
  if (!$("login").open) $("login").showModal();
}

async function enter() {
  try {
    const session = await (await ask("/api/session")).json();
    state.sees = session.seesObjects;
    state.limit = session.limits.requests;
    for (const id of ["capture", "tab-playground"]) $(id).hidden = !state.sees;
    const { requests, oldest, lost } = await (await ask("/api/requests")).json();
    Object.assign(state, { rows: [], shown: [], waiting: [], oldest, lost });
    take(requests);
    $("login").close();
    follow();
  } catch (error) {
    if (error instanceof Refused) login(token ? error.message : "");
    else {
      say("not connected", true);
      setTimeout(enter, 2000);
    }
  }
}

function start() {
  const given = /[#&]token=([^&]+)/.exec(location.hash)?.[1];
  if (given) {
    sessionStorage.setItem("token", decodeURIComponent(given));
    history.replaceState(null, "", "/");
  }
  token = sessionStorage.getItem("token") ?? "";
  theme(localStorage.getItem("theme") ?? "");
  $("chips").append(...QUICK.map(([name, value]) => h("button", { "data-filter": value, "aria-pressed": String(!value), onclick: () => { $("filter").value = value; filter(); } }, name)));
  for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => show(button.dataset.view));
  $("filter").addEventListener("input", filter);
  $("search").addEventListener("input", drawRegistered);
  $("rows").addEventListener("scroll", schedule, { passive: true });
  new ResizeObserver(schedule).observe($("rows"));
  $("pause").addEventListener("click", pause);
  $("theme").addEventListener("click", nextTheme);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("reload").addEventListener("click", loadRegistered);
  $("capture").addEventListener("click", () => capture(state.shown.map((row) => row.n)));
  $("clear").addEventListener("click", async () => {
    try {
      await ask("/api/clear", {});
      Object.assign(state, { rows: [], shown: [], waiting: [] });
      schedule();
    } catch (error) {
      say(error.message, true);
    }
  });
  $("question").addEventListener("submit", (event) => {
    event.preventDefault();
    evaluate();
  });
  $("enter").addEventListener("submit", (event) => {
    event.preventDefault();
    token = $("token").value;
    sessionStorage.setItem("token", token);
    $("token").value = "";
    enter();
  });
  document.addEventListener("keydown", keys);
  show("requests");
  enter();
}

start();
