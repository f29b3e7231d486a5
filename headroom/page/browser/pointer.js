// Mouse and keys on a timeline.

const STEP_KEYS = {ArrowLeft: -1, ArrowRight: 1};

function followPointer(timeline) {
  const {over, root} = timeline;
  const position = event => {
    const box = over.getBoundingClientRect();
    return {x: event.clientX - box.left, y: event.clientY - box.top};
  };
  const inPlot = ({x, y}) => x >= timeline.plot.left && x <= timeline.plot.right && y <= timeline.plot.bottom;
  let start = null;

  over.addEventListener("wheel", event => {
    if (event.ctrlKey || !inPlot(position(event))) return;
    event.preventDefault();
    const {window} = timeline, sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (sideways) timeline.pan(event.deltaX / timeline.plot.width);
    else timeline.zoom(Math.pow(1.0018, event.deltaY), timeline.x.invert(position(event).x), window);
  }, {passive: false});

  over.addEventListener("pointerdown", event => {
    if (event.button !== 0 || !inPlot(position(event))) return;
    start = {...position(event), window: timeline.window, pan: event.shiftKey};
    over.setPointerCapture(event.pointerId);
  });
  over.addEventListener("pointermove", event => {
    const at = position(event);
    if (start && start.pan) panTo(timeline, start, at);
    else if (start && Math.abs(at.x - start.x) > 3) {
      timeline.drag = [start.x, at.x];
      paintOver(timeline);
    } else if (!timeline.pinned) pointAt(timeline, at, inPlot(at));
  });
  over.addEventListener("pointerup", event => {
    const {drag} = timeline, began = start;
    start = timeline.drag = null;
    if (drag) {
      const [from, to] = drag.map(timeline.x.invert).sort(d3.ascending);
      timeline.setWindow(from, to);
    } else if (began && !began.pan) togglePin(timeline, position(event));
  });
  over.addEventListener("pointercancel", () => { start = timeline.drag = null; });
  over.addEventListener("pointerleave", () => timeline.pinned || leave(timeline));
  over.addEventListener("dblclick", () => timeline.setWindow(...timeline.whole));
  root.addEventListener("keydown", event => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey && pressed(timeline, event)) event.preventDefault();
  });
}

function panTo(timeline, start, at) {
  const by = (start.x - at.x) * (start.window[1] - start.window[0]) / timeline.plot.width;
  timeline.setWindow(start.window[0] + by, start.window[1] + by);
}

function pointAt(timeline, at, inside) {
  if (!inside) return leave(timeline);
  const instant = timeline.samples.instant[timeline.sampleAt(at.x)];
  const {area, tensor} = timeline.hit(instant, timeline.y.invert(at.y));
  timeline.setCursor(instant, tensor, area);
  timeline.at = at;
  tellPointed(timeline);
}

function leave(timeline) {
  timeline.pinned = false;
  timeline.pinnedAt = null;
  timeline.setCursor(-1);
  timeline.report.live.textContent = "";
  hideTooltip();
}

function togglePin(timeline, at) {
  const {pinned, pinnedAt} = timeline;
  timeline.pinned = false;
  pointAt(timeline, at, true);
  if (pinned && pinnedAt && Math.hypot(pinnedAt.x - at.x, pinnedAt.y - at.y) < 3) return leave(timeline);
  pin(timeline);
  timeline.pinnedAt = at;
}

function pin(timeline) {
  if (timeline.cursor < 0) return;
  timeline.pinned = true;
  paintOver(timeline);
  timeline.onCursor();
  tellPointed(timeline);
}

function tellPointed(timeline) {
  const box = timeline.over.getBoundingClientRect(), at = timeline.at;
  const pointer = {x: box.left + at.x, y: box.top + at.y};
  const covered = (from, to) => {
    const thing = tensorBox(timeline, from - box.left, to - box.left);
    return thing && {left: box.left + thing.left, right: box.left + thing.right, top: box.top + thing.top,
                     bottom: box.top + thing.bottom};
  };
  showTooltip(tooltipContent(timeline.trace, timeline), pointer, covered, timeline.pinned);
}

// Where the tensor under the cursor lies between two positions; null: nowhere.
function tensorBox(timeline, from, to) {
  const {tensor, trace, index, y, samples, plot} = timeline;
  if (tensor < 0) return null;
  const offsets = timeline.offsets(), first = index[trace.born[tensor]];
  const box = {left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity};
  for (let s = first; s < index[trace.died[tensor]]; s++) {
    const left = plot.left + samples.left[s], right = plot.left + samples.right[s];
    if (right < from || left > to) continue;
    const bottom = bandBottom(timeline, tensor, s) + offsets[s - first];
    box.left = Math.min(box.left, left);
    box.right = Math.max(box.right, right);
    box.top = Math.min(box.top, y(bottom + trace.bytes[tensor]));
    box.bottom = Math.max(box.bottom, y(bottom));
  }
  return box.left < box.right ? box : null;
}

// Moves the keyboard's cursor, and says what is there.
function moveTo(timeline, instant, tensor = -1) {
  timeline.pinned = false;
  instant = Math.max(0, Math.min(timeline.trace.instants - 1, instant));
  timeline.reveal(instant);
  timeline.setCursor(instant, tensor);
  say(timeline);
}

function say(timeline) {
  timeline.report.live.textContent = spokenText(timeline.trace, timeline);
  const {trace, tensor, cursor} = timeline;
  const bytes = tensor < 0 ? trace.allocated[cursor] : bottomOf(timeline) + trace.bytes[tensor];
  timeline.at = {x: timeline.pixelOf(timeline.cursor), y: timeline.y(bytes)};
  tellPointed(timeline);
}

// Bytes below the chosen tensor at the cursor.
function bottomOf({trace, tensor, cursor, report}) {
  const sums = groupBytesAt(trace, report.page.groups, cursor), group = trace.shown[tensor];
  let bottom = d3.sum(sums.subarray(0, group));
  forLiving(trace, cursor, t => bottom += t < tensor && trace.shown[t] === group ? trace.bytes[t] : 0);
  return bottom;
}

// The next tensor above (1) or below (-1) at the cursor that is at least a pixel high.
function stepTensor(timeline, direction) {
  const {trace, cursor, report, plot} = timeline, living = [];
  const least = report.page.top / (plot.bottom - plot.top);
  forLiving(trace, cursor, t => trace.bytes[t] >= least && living.push(t));
  living.sort((a, b) => trace.shown[a] - trace.shown[b] || a - b);
  const at = living.indexOf(timeline.tensor);
  const next = at < 0 ? (direction > 0 ? 0 : living.length - 1) : at + direction;
  moveTo(timeline, cursor, next in living ? living[next] : -1);
}

// True if the key meant something here.
function pressed(timeline, event) {
  const {trace, cursor} = timeline, {key} = event, page = Math.ceil(trace.instants / 20);
  const peak = trace.about.peak.instant, from = cursor < 0 ? peak : cursor;
  if (key in STEP_KEYS && event.shiftKey) return timeline.pan(STEP_KEYS[key] / 4), true;
  const targets = {p: peak, Home: 0, End: trace.instants - 1, PageUp: from - page, PageDown: from + page,
                   ArrowLeft: cursor < 0 ? from : from - 1, ArrowRight: cursor < 0 ? from : from + 1};
  if (key in targets) return moveTo(timeline, targets[key]), true;
  if (cursor < 0) return false;
  if (key === "ArrowUp" || key === "ArrowDown") return stepTensor(timeline, key === "ArrowUp" ? 1 : -1), true;
  return key === "Enter" && (pin(timeline), true);
}
