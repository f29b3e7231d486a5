// The row of controls, the keys of the page, the theme, and paper.

function connectControls(page) {
  const by = byId("group-by"), depth = byId("depth"), axis = byId("axis"), filter = byId("filter");
  by.replaceChildren(...GROUPINGS.map(([value, text]) => element("option", {value}, text)));
  const deepest = deepestModule(page.traces);
  depth.replaceChildren(...d3.range(1, deepest).map(n => element("option", {value: n}, ofMany(n, "part"))),
                        element("option", {value: 0}, "whole path"));
  const show = () => {
    by.value = page.by;
    depth.value = page.depth;
    byId("depth-label").hidden = !["module", "kind"].includes(page.by) || deepest < 2;
  };
  show();
  const regroup = () => {
    page.group(by.value, Number(depth.value));
    show();
  };
  by.addEventListener("change", regroup);
  depth.addEventListener("change", regroup);
  filter.addEventListener("input", () => page.filter(filter.value));
  axis.addEventListener("change", () => page.setAxis(axis.value));
  byId("axis-label").hidden = page.traces.some(trace => !trace.axes.time);
  byId("all").addEventListener("click", () => page.active.setWindow(...page.active.whole));
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  byId("help").addEventListener("click", event => event.target === byId("help") && byId("help").close());
  byId("theme").addEventListener("click", () => changeTheme(page));
  document.addEventListener("keydown", event => pageKey(page, event));
}

function isDark() {
  const {theme} = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function changeTheme(page) {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  page.draw();
}

function nextOf(select) {
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  select.dispatchEvent(new Event("change"));
}

function pageKey(page, event) {
  const {key, target} = event, timeline = page.active;
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  if (target === byId("filter")) return key === "Escape" ? clearFilter(page) : undefined;
  if (target.tagName === "SELECT") return;
  const actions = {
    "/": () => byId("filter").select(),
    "?": () => byId("help").showModal(),
    "0": () => timeline.setWindow(...timeline.whole),
    "Escape": () => escape(page, timeline),
    "+": () => timeline.zoom(1 / 1.5, center(timeline)),
    "=": () => timeline.zoom(1 / 1.5, center(timeline)),
    "-": () => timeline.zoom(1.5, center(timeline)),
    "g": () => nextOf(byId("group-by")),
    "t": () => byId("axis-label").hidden || nextOf(byId("axis")),
    "d": () => changeTheme(page)};
  if (!actions[key]) return;
  event.preventDefault();
  actions[key]();
}

// Zooming by key keeps the cursor in place.
function center(timeline) { return timeline.cursor < 0 ? undefined : timeline.axis[timeline.cursor]; }

function clearFilter(page) {
  byId("filter").value = "";
  byId("filter").blur();
  page.filter("");
}

// One thing at a time: the cursor, the single group, the window.
function escape(page, timeline) {
  if (timeline.pinned || timeline.cursor >= 0) leave(timeline);
  else if (page.only >= 0) page.single(page.only);
  else timeline.setWindow(...timeline.whole);
}

// On paper: light, without a cursor, all rows that are open.
function preparePaper(page) {
  let theme;
  window.addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    document.documentElement.classList.add("paper");
    document.querySelectorAll("details").forEach(details => details.open = true);
    page.reports.forEach(report => leave(report.timeline));
    page.draw();
    page.reports.forEach(report => report.timeline.drawOutlines());
  });
  window.addEventListener("afterprint", () => {
    document.documentElement.classList.remove("paper");
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    page.draw();
  });
}

function followSize(page) {
  const size = () => page.reports.map(({timeline}) => [timeline.root.clientWidth, timeline.root.clientHeight]).join();
  let drawn = size();
  const observer = new ResizeObserver(() => {
    if (size() !== drawn) page.draw();
    drawn = size();
  });
  page.reports.forEach(({timeline}) => observer.observe(timeline.root));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.draw());
}

async function start() {
  const texts = kind => Array.from(document.querySelectorAll("script." + kind), script => script.textContent);
  const columns = texts("columns");
  const traces = await Promise.all(texts("about").map((about, i) => decodeTrace(JSON.parse(about), columns[i])));
  showHead(traces);
  if (traces.some(trace => trace.instants === 0)) throw new Error("the trace has no events");
  const page = new Page(traces);
  connectControls(page);
  const diff = byId("diff");
  if (diff) showDifference(JSON.parse(diff.textContent), byId("difference"));
  page.tellFilter();
  page.draw();
  preparePaper(page);
  followSize(page);
  document.documentElement.dataset.openedAfterMs = Math.round(performance.now());
  return page;
}

function tellFailure(error) {
  document.querySelector(".controls").hidden = true;
  byId("failure").hidden = false;
  byId("failure").textContent = `The page could not be shown: ${error.message}`;
  throw error;
}

// For tests: what cannot be read from the page itself.
window.headroomReport = {ready: start().catch(tellFailure).then(page => Object.freeze({
  pixelOf: (instant, report = 0) => page.reports[report].timeline.pixelOf(instant),
  window: (report = 0) => page.reports[report].timeline.window.slice(),
  outlines: (report = 0) => page.reports[report].timeline.outlines.length}))};
