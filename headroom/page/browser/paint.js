// Draws a timeline: areas and bands on a canvas, the cursor on a second one above it.

// Colours of the theme, from the style sheet.
function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function cleanCanvas(canvas) {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  const width = Math.round(box.width * ratio), height = Math.round(box.height * ratio);
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, box.width, box.height);
  context.font = "12px " + getComputedStyle(document.body).fontFamily;
  context.textBaseline = "middle";
  return context;
}

// Diagonal lines, for memory that no tensor has.
function hatch(context, color, background, distance = 7) {
  const ratio = window.devicePixelRatio || 1, tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(distance * ratio);
  const lines = tile.getContext("2d"), size = tile.width;
  lines.fillStyle = background;
  lines.fillRect(0, 0, size, size);
  lines.strokeStyle = color;
  lines.lineWidth = ratio;
  for (const shift of [-size, 0, size]) {
    lines.moveTo(shift - 1, size + 1);
    lines.lineTo(shift + size + 1, -1);
  }
  lines.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

// The steps of a curve from sample `from` to before `to`; `height` gives the pixel of a sample.
function traceSteps(context, timeline, from, to, height) {
  const {left, right} = timeline.samples, x0 = timeline.plot.left;
  for (let s = from; s < to; s++) {
    const y = height(s);
    context.lineTo(x0 + left[s], y);
    context.lineTo(x0 + right[s], y);
  }
}

function fillBelow(context, timeline, top, style) {
  const {samples, plot, y} = timeline;
  context.beginPath();
  context.moveTo(plot.left + samples.left[0], plot.bottom);
  traceSteps(context, timeline, 0, samples.count, s => y(top[s]));
  context.lineTo(plot.left + samples.right[samples.count - 1], plot.bottom);
  context.fillStyle = style;
  context.fill();
}

function paintAreas(timeline) {
  const context = cleanCanvas(timeline.areas), {plot, samples, tops, trace} = timeline;
  const groups = timeline.report.page.groups;
  paintBands(context, timeline);
  if (samples.count === 0) return;
  context.save();
  context.beginPath();
  context.rect(plot.left, plot.top - MARGIN.top, plot.width, plot.bottom - plot.top + MARGIN.top);
  context.clip();
  fillBelow(context, timeline, samples.reserved, hatch(context, themeColor("hatch"), themeColor("cache")));
  for (let g = groups.list.length - 1; g >= 0; g--) fillBelow(context, timeline, tops[g], groups.list[g].color);
  paintOutlines(context, timeline);
  context.beginPath();
  traceSteps(context, timeline, 0, samples.count, s => timeline.y(samples.reserved[s]));
  context.strokeStyle = themeColor("text");
  context.lineWidth = 1.25;
  context.stroke();
  paintMoments(context, timeline, trace.about.marks.map(mark => mark[0]), "muted", [2, 3]);
  paintMoments(context, timeline, trace.about.ooms.map(oom => oom.instant), "alarm", []);
  context.restore();
}

// Lines at marks or refusals; only their tops where they are too many to tell apart.
function paintMoments(context, timeline, instants, color, dash) {
  const {axis, plot, window: [from, to]} = timeline;
  const visible = instants.filter(instant => axis[instant] >= from && axis[instant] <= to);
  const bottom = visible.length > MOST_LINES ? plot.top + 3 : plot.bottom;
  for (const instant of visible) paintVertical(context, timeline, instant, themeColor(color), dash, bottom);
}

function paintVertical(context, timeline, instant, color, dash, bottom = timeline.plot.bottom) {
  const x = Math.round(timeline.x(timeline.axis[instant])) + 0.5;
  context.beginPath();
  context.setLineDash(dash);
  context.moveTo(x, timeline.plot.top - 4);
  context.lineTo(x, bottom);
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.stroke();
  context.setLineDash([]);
}

function bandBottom({trace, tops}, tensor, sample) {
  const group = trace.shown[tensor];
  return group ? tops[group - 1][sample] : 0;
}

// The outline of a tensor: `offsets` are its heights in the band at each sample of its life.
function traceTensor(context, timeline, tensor, offsets) {
  const {trace, index, y, samples, plot} = timeline, bytes = trace.bytes[tensor];
  const from = index[trace.born[tensor]], to = index[trace.died[tensor]];
  const bottom = s => bandBottom(timeline, tensor, s) + offsets[s - from];
  traceSteps(context, timeline, from, to, s => y(bottom(s) + bytes));
  for (let s = to - 1; s >= from; s--) {
    context.lineTo(plot.left + samples.right[s], y(bottom(s)));
    context.lineTo(plot.left + samples.left[s], y(bottom(s)));
  }
  context.closePath();
}

function paintOutlines(context, timeline) {
  context.strokeStyle = themeColor("outline");
  context.lineWidth = 0.75;
  context.beginPath();
  for (const {tensor, offsets} of timeline.outlines) {
    for (const bytes of [0, timeline.trace.bytes[tensor]]) traceEdge(context, timeline, tensor, offsets, bytes);
  }
  context.stroke();
}

// The level parts of a tensor's lower or upper edge. Where the memory below changes all the time an edge
// has none, and a line through its jumps would only be noise.
function traceEdge(context, timeline, tensor, offsets, bytes) {
  const {trace, index, samples, plot, y} = timeline, from = index[trace.born[tensor]], to = index[trace.died[tensor]];
  const height = s => y(bandBottom(timeline, tensor, s) + offsets[s - from] + bytes);
  for (let s = from, next; s < to; s = next) {
    const level = height(s);
    for (next = s + 1; next < to && Math.abs(height(next) - level) < 0.75;) next++;
    if (samples.right[next - 1] - samples.left[s] < 4) continue;
    context.moveTo(plot.left + samples.left[s], level);
    context.lineTo(plot.left + samples.right[next - 1], level);
  }
}

// The texts to try, the longest first; the last may be cut.
const BAND_TEXTS = {
  steps: step => step === 0 ? ["before step 1"] : ["step " + step, String(step)],
  phases: phase => phase === "unknown" ? [] : [phase],
  marks: text => [text]};
const BAND_TINTS = {backward: "band-2", optimizer: "band-3"};
const MOST_LINES = 40;

// Steps, phases and marks above the plot, with their names where there is room.
function paintBands(context, timeline) {
  const {about, bands} = timeline.trace, {plot} = timeline;
  let top = 2;
  for (const kind of bands) {
    paintBand(context, timeline, kind, about[kind], top);
    context.fillStyle = themeColor("muted");
    context.textAlign = "right";
    context.fillText(kind, plot.left - 10, top + BAND / 2);
    top += BAND;
  }
}

function paintBand(context, timeline, kind, pairs, top) {
  const {axis, trace, plot, x} = timeline;
  const first = Math.max(0, d3.bisector(pair => axis[pair[0]]).right(pairs, timeline.window[0]) - 1);
  let drawn = plot.left;
  context.textAlign = "left";
  for (let i = first; i < pairs.length && axis[pairs[i][0]] < timeline.window[1]; i++) {
    const end = i + 1 < pairs.length ? pairs[i + 1][0] : trace.instants;
    const left = Math.max(drawn, x(axis[pairs[i][0]])), right = Math.min(plot.right, x(axis[end]));
    if (right - left < 1) continue;
    const texts = BAND_TEXTS[kind](pairs[i][1]);
    if (kind !== "marks" && texts.length) {
      const tint = kind === "phases" ? BAND_TINTS[pairs[i][1]] : i % 2 && "band-2";
      context.fillStyle = themeColor(tint || "band");
      context.fillRect(left, top, right - left - (right - left > 3 ? 1 : 0), BAND - 2);
    }
    paintBandText(context, texts, left, right - 10, top, kind === "marks");
    drawn = right;
  }
}

// A name that does not fit is left out; a mark's may be cut.
function paintBandText(context, texts, left, right, top, mayCut) {
  const room = right - left, cut = text => mayCut ? middleCut(text, Math.max(4, Math.floor(room / 6.5))) : text;
  const shown = texts.map(cut).find(text => context.measureText(text).width <= room);
  if (!shown) return;
  context.fillStyle = themeColor("text");
  context.fillText(shown, left + 5, top + BAND / 2 - 1);
}

// The cursor, and the tensor under it over its whole life.
function paintOver(timeline) {
  const context = cleanCanvas(timeline.over), {plot, cursor, tensor, trace, index} = timeline;
  context.save();
  context.beginPath();
  context.rect(plot.left, 0, plot.width, plot.bottom + 5);
  context.clip();
  if (tensor >= 0 && index[trace.born[tensor]] < index[trace.died[tensor]]) {
    context.beginPath();
    traceTensor(context, timeline, tensor, timeline.offsets());
    context.fillStyle = themeColor("highlight");
    context.fill();
    context.strokeStyle = themeColor("text");
    context.lineWidth = 1.5;
    context.stroke();
  }
  if (cursor >= 0) paintVertical(context, timeline, cursor, themeColor("text"), timeline.pinned ? [] : [3, 3]);
  if (timeline.drag) {
    const [from, to] = timeline.drag;
    context.fillStyle = themeColor("highlight");
    context.fillRect(Math.min(from, to), plot.top, Math.abs(to - from), plot.bottom - plot.top);
  }
  context.restore();
}
