// The page: what is shown, and when it is fetched.

import { follow, get, post } from "./api.js";
import { configuration } from "./configuration.js";
import { h, morph } from "./dom.js";
import { errors } from "./errors.js";
import { ago, bytes, count, duration, NONE, rate, share } from "./format.js";
import { overview } from "./overview.js";
import { sources } from "./sources.js";
import { timeline } from "./timeline.js";
import { watermarks } from "./watermarks.js";

const TABS = {
  overview: { title: "Overview", view: overview },
  watermarks: { title: "Watermarks", view: watermarks },
  timeline: { title: "Timeline", view: timeline },
  sources: { title: "Sources", view: sources },
  errors: { title: "Errors", view: errors },
  configuration: { title: "Configuration", view: configuration },
};
const HISTORY = 600; // micro-batches, as the server keeps them

const state = {
  jobs: [],
  job: null,
  tab: "overview",
  operator: null,
  identifier: "",
  connected: null,
  message: null,
  now: Date.now(),
  ...nothingLoaded(),
};
let loading = false;
let again = false;

function nothingLoaded() {
  return { page: null, plan: null, history: [], watermarks: null, subtasks: null, letters: null, configuration: null };
}

const act = {
  render,
  choose(operator) {
    go({ operator, tab: "overview" });
    document.querySelector(`[data-operator="${operator}"]`)?.focus();
  },
  identifier(identifier) {
    state.identifier = identifier;
    load();
  },
};

// --- Where the page is: the part of the address after # ---------------------------------------------------------------

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const job = given.get("job");
  if (job !== state.job) Object.assign(state, nothingLoaded(), { job });
  state.tab = given.get("tab") in TABS ? given.get("tab") : "overview";
  const operator = given.get("operator");
  state.operator = operator === null ? null : Number(operator);
}

function go(change) {
  const next = { job: state.job, tab: state.tab, operator: state.operator, ...change };
  const address = new URLSearchParams(Object.entries(next).filter(([, value]) => value !== null));
  history.replaceState(null, "", `#${address}`);
  readAddress();
  render();
  load();
}

// --- Data --------------------------------------------------------------------------------------------------------------

/** Fetch what is shown. While that runs, further calls are one call afterwards. */
async function load() {
  if (state.job === null) return;
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  const job = state.job;
  try {
    const found = await fetched(job);
    if (job === state.job) Object.assign(state, found);
  } catch (error) {
    state.message = { text: error.message, bad: true };
  }
  loading = false;
  render();
  if (again) {
    again = false;
    load();
  }
}

async function fetched(job) {
  const at = (path) => `api/jobs/${encodeURIComponent(job)}${path}`;
  const found = { page: await get(at("")) };
  if (!state.plan) found.plan = await get(at("/plan"));
  const plan = found.plan ?? state.plan;
  const operator = plan?.operators[state.operator];
  if (state.tab === "overview" && plan && !operator) state.operator = null;
  const wanted = {
    timeline: async () => (found.history = await newHistory(at)),
    errors: async () => (found.letters = await get(at("/letters"))),
    configuration: async () => (found.configuration = await get(at("/configuration"))),
    watermarks: async () => (found.watermarks = await get(at(`/watermarks?identifier=${encodeURIComponent(state.identifier)}`))),
    overview: async () => {
      found.watermarks = await get(at("/watermarks"));
      const uid = encodeURIComponent(operator?.uid ?? "");
      found.subtasks = operator ? await get(at(`/operator?uid=${uid}`)) : null;
    },
  };
  await wanted[state.tab]?.();
  return found;
}

async function newHistory(at) {
  const newest = state.history[state.history.length - 1]?.batch_id ?? -1;
  const page = await get(at(`/history?after=${newest}`));
  return [...state.history.filter((batch) => batch.batch_id >= page.first), ...page.batches].slice(-HISTORY);
}

function onJobs(jobs) {
  const before = state.jobs.find((one) => one.id === state.job)?.revision;
  state.jobs = jobs;
  if (!jobs.some((one) => one.id === state.job)) {
    go({ job: jobs.length ? jobs[jobs.length - 1].id : null, operator: null });
    return;
  }
  if (jobs.find((one) => one.id === state.job).revision !== before || !state.page) load();
  else render();
}

async function perform(path, body) {
  try {
    const done = await post(`api/jobs/${encodeURIComponent(state.job)}${path}`, body);
    state.message = { text: done.message, bad: false };
  } catch (error) {
    state.message = { text: error.message, bad: true };
  }
  render();
}

// --- The frame of the page ---------------------------------------------------------------------------------------------

function render() {
  state.now = Date.now();
  const root = document.getElementById("app");
  document.title = state.page ? `${state.page.name} – dsv2` : "dsv2 dashboard";
  morph(root, h("div", { id: "app" }, header(), notices(), state.page ? body() : h("p", { class: "empty" }, waiting())));
}

function waiting() {
  return state.connected === false ? "The dashboard cannot be reached." : "Waiting for a job …";
}

function header() {
  const page = state.page;
  return h(
    "header",
    { class: "top" },
    h("span", { class: "brand" }, h("img", { src: "static/icon.svg", alt: "", width: 24, height: 24 }), "dsv2"),
    state.jobs.length > 1 ? jobChoice() : h("h1", {}, page?.name ?? ""),
    page && h("span", { class: `pill ${page.status}`, role: "status" }, page.status),
    page?.updated_at_ms && h("span", { class: "soft" }, `micro-batch ${page.summary.batch_id}, ${ago(page.updated_at_ms, state.now)}`),
    page?.actions.length > 0 && actions(page.actions),
  );
}

function jobChoice() {
  return h(
    "h1",
    {},
    h(
      "select",
      { "aria-label": "Job", onchange: (event) => go({ job: event.currentTarget.value, operator: null }) },
      state.jobs.map((job) => h("option", { value: job.id, selected: job.id === state.job }, `${job.name} (${job.status})`)),
    ),
  );
}

function actions(possible) {
  const savepoint = () => {
    const path = prompt("Take a savepoint in this new folder, as the job sees it:");
    if (path) perform("/savepoint", { path });
  };
  const stop = () => {
    if (confirm("Stop the job after the running micro-batch?")) perform("/stop");
  };
  return h(
    "span",
    { class: "actions" },
    possible.includes("savepoint") && h("button", { type: "button", onclick: savepoint }, "Savepoint"),
    possible.includes("stop") && h("button", { type: "button", class: "danger", onclick: stop }, "Stop"),
  );
}

function notices() {
  const close = () => {
    state.message = null;
    render();
  };
  return h(
    "div",
    { class: "notices", role: "status", "aria-live": "polite" },
    state.connected === false &&
      state.page &&
      h("p", { class: "notice bad" }, "Not connected: the program has ended, or cannot be reached. This is what was known last."),
    state.message &&
      h(
        "p",
        { class: state.message.bad ? "notice bad" : "notice" },
        state.message.text,
        h("button", { type: "button", class: "close", "aria-label": "Close", onclick: close }, "×"),
      ),
  );
}

function body() {
  return h(
    "main",
    {},
    tiles(state.page.summary),
    h("nav", { role: "tablist", "aria-label": "Views" }, Object.entries(TABS).map(([name, { title }]) => tab(name, title))),
    h(
      "div",
      { role: "tabpanel", id: "view", "data-key": state.tab, "aria-labelledby": `tab-${state.tab}` },
      TABS[state.tab].view(state, act),
    ),
  );
}

function tiles(summary) {
  const slow = summary.slowest && `${summary.slowest} (${share(summary.slowest_busy)})`;
  const shown = [
    ["Records in", rate(summary.in_rate), summary.in_rate > 0],
    ["Records out", rate(summary.out_rate), summary.out_rate > 0],
    ["Micro-batch", duration(summary.duration_ms), summary.duration_ms !== null],
    ["Lag", count(summary.lag), summary.lag !== null],
    ["Event time (UTC)", summary.event_time || NONE, Boolean(summary.event_time)],
    ["State", summary.state_bytes === null ? "unknown" : bytes(summary.state_bytes), summary.state_bytes !== null],
    ["Busiest operator", slow || NONE, Boolean(slow)],
    ["Errors, late", `${count(summary.errors)}, ${count(summary.late)}`, summary.errors + summary.late > 0],
  ];
  return h(
    "dl",
    { class: "tiles" },
    shown.map(([name, value, known]) => h("div", { class: known ? "tile" : "tile none" }, h("dt", {}, name), h("dd", { title: value }, value))),
  );
}

function tab(name, title) {
  const names = Object.keys(TABS);
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  const move = (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = names[(names.indexOf(name) + steps[event.key] + names.length) % names.length];
    go({ tab: next });
    document.getElementById(`tab-${next}`).focus();
  };
  const summary = state.page.summary;
  const number = name === "errors" ? summary.errors + (state.page.error ? 1 : 0) : 0;
  const troubled = name === "sources" ? state.page.splits.filter((split) => split.trouble).length : 0;
  return h(
    "button",
    {
      type: "button",
      role: "tab",
      id: `tab-${name}`,
      "aria-selected": String(state.tab === name),
      "aria-controls": "view",
      tabindex: state.tab === name ? "0" : "-1",
      onclick: () => go({ tab: name }),
      onkeydown: move,
    },
    title,
    number + troubled > 0 && h("span", { class: "badge" }, count(number + troubled)),
  );
}

// --- Start -------------------------------------------------------------------------------------------------------------

if (new URLSearchParams(location.search).has("token")) {
  history.replaceState(null, "", `${location.pathname}${location.hash}`); // the cookie has the token from now on
}
addEventListener("hashchange", () => {
  readAddress();
  render();
  load();
});
readAddress();
render();
follow(onJobs, (connected) => {
  if (connected && state.connected === false) Object.assign(state, nothingLoaded()); // it may be another program
  state.connected = connected;
  render();
});
setInterval(() => {
  if (!document.hidden) render();
}, 1000);
