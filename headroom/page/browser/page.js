// The page as a whole: what all timelines share (grouping, filter, axis, theme), and its start.

const GROUPINGS = [["category", "category"], ["module", "module"], ["kind", "module, layers together"],
                   ["operation", "operation"], ["line", "source line"], ["size", "size of the tensor"]];
const byId = id => document.getElementById(id);

class Page {
  constructor(traces) {
    Object.assign(this, {traces, axis: "events", words: [], only: -1});
    Object.assign(this, usefulGrouping(traces));
    this.top = this.highest();
    this.regroup();
    this.reports = traces.map((trace, i) => new Report(this, trace, i));
    this.reports.forEach(report => this.link(report));
    this.active = this.reports[0].timeline;
  }

  get filtered() { return this.words.length > 0 || this.only >= 0; }

  // The top of all y axes. A capacity far above the memory used is told in words only.
  highest() {
    const reserved = d3.max(this.traces, trace => trace.about.reserved_peak.reserved_bytes);
    const capacities = this.traces.map(trace => trace.about.capacity_bytes || 0);
    return 1.04 * Math.max(reserved, ...capacities.filter(bytes => bytes <= 1.6 * reserved), 1);
  }

  regroup() {
    this.groups = makeGroups(this.traces, this.by, this.depth);
    this.only = -1;
    this.traces.forEach(trace => assignGroups(trace, this.groups));
    this.refilter();
  }

  refilter() { this.traces.forEach(trace => applyFilter(trace, this.groups, this.words, this.only)); }

  // Two timelines show the same share of their axes.
  link({timeline}) {
    timeline.onWindow = (from, to) => {
      for (const other of this.reports) if (other.timeline !== timeline) other.timeline.setShares(from, to);
    };
  }

  group(by, depth) {
    Object.assign(this, {by, depth});
    this.regroup();
    this.reports.forEach(report => report.legend.build());
    this.changed();
  }

  filter(words) {
    this.words = words.toLowerCase().split(/\s+/).filter(word => word);
    this.refilter();
    this.changed();
  }

  // A click on a row of the legend shows its tensors alone; a second click shows all again.
  single(group) {
    this.only = this.only === group ? -1 : group;
    this.refilter();
    this.changed();
  }

  setAxis(axis) {
    this.axis = axis;
    this.reports.forEach(report => report.timeline.showAll());
    this.draw();
  }

  changed() {
    this.tellFilter();
    this.reports.forEach(report => leave(report.timeline));
    this.draw();
  }

  // A page in a folded cell of a notebook has no width; followSize() draws it when it is unfolded.
  draw() {
    if (this.reports[0].timeline.root.clientWidth > 0) this.reports.forEach(report => report.draw());
  }

  tellFilter() { byId("filter-figures").replaceChildren(...filterText(this)); }
}

class Report {
  constructor(page, trace, number) {
    Object.assign(this, {page, trace});
    const root = byId("report").content.firstElementChild.cloneNode(true);
    byId("reports").append(root);
    const part = name => root.querySelector("." + name);
    this.label = page.traces.length > 1 ? "AB"[number] + ": " : "";
    if (this.label) part("name").textContent = this.label + trace.about.title;
    else part("name").remove();
    if (this.label) showFacts(trace.about, part("facts"));
    else part("facts").remove();
    this.live = part("live");
    showFigures(trace, root);
    this.timeline = new Timeline(this, part("timeline"));
    this.overview = new Overview(this.timeline, part("overview"));
    this.legend = new Legend(this, part("legend"));
    this.segments = new Segments(this, part("segments"));
    this.largest = new Largest(this, part("largest"));
    this.legend.build();
    this.timeline.onCursor = () => this.cursorMoved();
    part("timeline").addEventListener("focusin", () => page.active = this.timeline);
    followPointer(this.timeline);
    if (page.traces.length > 1) byId("details").append(part("details"));
  }

  cursorMoved() {
    this.legend.update();
    const {timeline} = this, instant = timeline.pinned ? timeline.cursor : -1;
    if (instant !== this.pinnedInstant) {
      this.pinnedInstant = instant;
      this.largest.draw();
    }
  }

  draw() {
    this.timeline.draw();
    this.overview.draw();
    this.legend.update();
    this.segments.draw();
    this.largest.draw();
  }
}

// The figures that people want first, and what did not fit.
function showFigures(trace, root) {
  const {about} = trace, {peak, reserved_peak: reserved, capacity_bytes: capacity, ooms, ooms_count: refused} = about;
  const cache = peak.reserved_bytes - peak.allocated_bytes;
  const cacheNote = shareText(cache, peak.reserved_bytes) + " of reserved is not allocated";
  const figure = (name, bytes, note, kind) => element("div", {class: "figure " + kind}, element("dt", {}, name),
    element("dd", {}, sizeElement("b", bytes)), element("dd", {class: "note"}, note));
  const figures = [figure("peak allocated", peak.allocated_bytes, momentText(trace, peak.instant), "allocated"),
                   figure("peak reserved", reserved.reserved_bytes, momentText(trace, reserved.instant), "reserved"),
                   figure("cache at the peak", cache, cacheNote, "cache")];
  if (capacity !== null) {
    const fits = (refused === 0 || about.survived) && reserved.reserved_bytes <= capacity;
    const rest = capacity - reserved.reserved_bytes;
    const note = fits && refused ? `survived ${countText(refused)} refused request${refused > 1 ? "s" : ""}` :
      fits ? sizeText(rest) + " above the peak reserved" :
      "does not fit" + (rest < 0 ? `: ${sizeText(-rest)} too little` : "");
    figures.push(figure("capacity", capacity, note, fits ? "capacity" : "capacity alarm"));
  }
  root.querySelector(".figures").replaceChildren(...figures);
  const rows = ooms.slice(0, 5).map(oom => element("li", {}, oomText(trace, oom)));
  if (refused > 5) rows.push(element("li", {}, `${countText(refused - 5)} more refused requests.`));
  root.querySelector(".ooms").replaceChildren(...rows);
}

function oomText(trace, {instant, asked_bytes: asked, free_bytes: free, recorded}) {
  const room = free === null ? "" : `, ${sizeText(free)} free`;
  const source = recorded ? "recorded by the program" : "refused by the allocator model in this replay";
  return `Out of memory at ${momentText(trace, instant)}: ${sizeText(asked)} requested${room} (${source}).`;
}

// What is known of the trace; of many settings the first few and the last, the others on demand.
function showFacts(about, root) {
  const device = about.device === null ? "" : String(about.device);
  const facts = [["program", about.program], ["device", device], ["allocator of PyTorch", about.torch],
                 ["allocator settings", about.settings], ["events", countText(about.events)],
                 ["tensors", countText(about.tensors)]].filter(([, value]) => value);
  const more = about.facts.length > 7 ? about.facts.slice(4, -1) : [];
  const list = rows => element("dl", {}, ...rows.map(row => element("div", {}, ...definitions([row]))));
  root.replaceChildren(list(facts.concat(about.facts.filter(fact => !more.includes(fact)))));
  const summary = element("summary", {}, `${more.length} more settings`);
  if (more.length) root.append(element("details", {}, summary, list(more)));
}

function showHead(traces) {
  const [first] = traces.map(trace => trace.about);
  byId("title").textContent = traces.length > 1 ? "Two traces compared" : first.title;
  if (traces.length === 1) showFacts(first, document.querySelector("header .facts"));
  const notes = traces.flatMap(({about}) => about.notes.concat(thinnedNote(about)));
  showNotes([...new Set(notes)].map(note => element("li", {}, note)));
  byId("made-by").textContent = `Made by ${first.made_by}.`;
}

// The first few, and the others on demand: the report of an out-of-memory has twenty lines.
function showNotes(lines) {
  const more = lines.slice(3), summary = element("summary", {}, `${more.length} more lines`);
  if (more.length) lines.splice(3, more.length, element("li", {}, element("details", {}, summary, element("ul", {}, ...more))));
  byId("notes").replaceChildren(...lines);
}

function thinnedNote(about) {
  if (!about.thinned) return [];
  const left = about.tensors_left_out ? ` ${ofMany(about.tensors_left_out, "tensor")} that lived only between them ` +
    (about.tensors_left_out === 1 ? "is" : "are") + " left out." : "";
  const notes = [`The page shows ${countText(about.instants)} instants of ${countText(about.events)} events.${left}`];
  if (about.tensors_merged)
    notes.push(`So many tensors live at once that ${ofMany(about.tensors_merged, "tensor")} ` +
      "are drawn together with others of the same place and life; the allocator's segments are left out.");
  return notes;
}
