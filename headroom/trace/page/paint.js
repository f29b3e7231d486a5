// Draws a timeline: areas and bands on a canvas, axes and labels as SVG, the cursor on a second canvas.

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
  for (const [instant] of trace.about.marks) paintVertical(context, timeline, instant, themeColor("muted"), [2, 3]);
  for (const {instant} of trace.about.ooms) paintVertical(context, timeline, instant, themeColor("alarm"), []);
  context.restore();
}

function paintVertical(context, timeline, instant, color, dash) {
  const x = Math.round(timeline.x(timeline.axis[instant])) + 0.5;
  context.beginPath();
  context.setLineDash(dash);
  context.moveTo(x, timeline.plot.top - 4);
  context.lineTo(x, timeline.plot.bottom);
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.stroke();
  context.setLineDash([]);
}

// The outline of a tensor: `offsets` are its heights in the band at each sample of its life.
function traceTensor(context, timeline, tensor, offsets) {
  const {trace, index, tops, y, samples, plot} = timeline, group = trace.shown[tensor], bytes = trace.bytes[tensor];
  const from = index[trace.born[tensor]], to = index[trace.died[tensor]];
  const bottom = s => (group ? tops[group - 1][s] : 0) + offsets[s - from];
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
  for (const {tensor, offsets} of timeline.outlines) {
    context.beginPath();
    traceTensor(context, timeline, tensor, offsets);
    context.stroke();
  }
}

const bandText = {
  steps: (step) => step === 0 ? "before step 1" : "step " + step,
  phases: (phase) => phase === "unknown" ? "" : phase,
  marks: (text) => text};

// Steps, phases and marks above the plot, with their names where there is room.
function paintBands(context, timeline) {
  const {about} = timeline.trace, {plot} = timeline;
  let top = 2;
  for (const kind of ["steps", "phases", "marks"]) {
    if (about[kind].length === 0) continue;
    paintBand(context, timeline, kind, about[kind], top);
    context.fillStyle = themeColor("muted");
    context.textAlign = "right";
    context.fillText(kind, plot.left - 10, top + BAND / 2);
    top += BAND;
  }
}

function paintBand(context, timeline, kind, pairs, top) {
  const {axis, trace, plot, x} = timeline, tints = [themeColor("band"), themeColor("band-2")];
  const first = Math.max(0, d3.bisector(pair => axis[pair[0]]).right(pairs, timeline.window[0]) - 1);
  let drawn = plot.left;
  context.textAlign = "left";
  for (let i = first; i < pairs.length && axis[pairs[i][0]] < timeline.window[1]; i++) {
    const end = i + 1 < pairs.length ? pairs[i + 1][0] : trace.instants;
    const left = Math.max(drawn, x(axis[pairs[i][0]])), right = Math.min(plot.right, x(axis[end]));
    if (right - left < 1) continue;
    const text = bandText[kind](pairs[i][1]);
    if (kind !== "marks" && text) {
      context.fillStyle = tints[i % 2];
      context.fillRect(left, top, right - left - (right - left > 3 ? 1 : 0), BAND - 2);
    }
    paintBandText(context, text, left, right, top, kind === "marks");
    drawn = right;
  }
}

// A name that does not fit is left out; a mark's may be cut.
function paintBandText(context, text, left, right, top, may_cut) {
  const room = right - left - 10;
  if (!text || room < 12) return;
  const shown = may_cut ? middleCut(text, Math.max(4, Math.floor(room / 6.5))) : text;
  if (context.measureText(shown).width > room) return;
  context.fillStyle = themeColor("text");
  context.fillText(shown, left + 5, top + BAND / 2 - 1);
}

// Ticks at round binary sizes.
function sizeTicks(top, count) {
  let step = 1;
  while (top / step > count) step *= 2;
  return d3.range(0, top, step);
}

function paintAxes(timeline) {
  const {axes, plot, trace, report} = timeline, byTime = timeline.axis === trace.axes.time;
  const ticks = sizeTicks(report.page.top, Math.max(3, (plot.bottom - plot.top) / 48));
  const y = d3.svg.axis().scale(timeline.y).orient("left").tickValues(ticks).tickSize(-plot.width, 0).tickPadding(8)
      .tickFormat(bytes => sizeText(bytes).replace(/\.0+ /, " "));
  const span = (timeline.window[1] - timeline.window[0]) / 10;
  const x = d3.svg.axis().scale(timeline.x).orient("bottom").ticks(Math.max(2, Math.round(plot.width / 120))).tickSize(5, 0)
      .tickFormat(value => byTime ? timeText(value, trace.axes.time[trace.instants], span) : value % 1 ? "" : countText(value));
  axes.select(".y").attr("transform", `translate(${plot.left},0)`).call(y);
  axes.select(".x").attr("transform", `translate(0,${plot.bottom})`).call(x);
  axes.select(".unit").attr("x", plot.left - 10).attr("y", plot.bottom + 19).text(byTime ? "time" : "event");
  paintLabels(timeline);
}

// The two peaks, the capacity and the refusals.
function paintLabels(timeline) {
  const {about} = timeline.trace, {x, y, axis} = timeline, labels = [];
  const at = (instant, bytes) => ({x: x((axis[instant] + axis[instant + 1]) / 2), y: y(bytes)});
  if (about.capacity_bytes !== null && about.capacity_bytes <= timeline.report.page.top) {
    labels.push({x: timeline.plot.right, y: y(about.capacity_bytes), line: true, name: "capacity",
                 text: "capacity " + sizeText(about.capacity_bytes)});
  }
  const {peak, reserved_peak: reserved} = about;
  labels.push({...at(reserved.instant, reserved.reserved_bytes), name: "reserved",
               text: "peak reserved " + sizeText(reserved.reserved_bytes)});
  labels.push({...at(peak.instant, peak.allocated_bytes), name: "allocated", dot: true,
               text: "peak allocated " + sizeText(peak.allocated_bytes)});
  for (const oom of about.ooms.slice(0, 20)) {
    labels.push({x: x(axis[oom.instant]), y: timeline.plot.top - 14, name: "oom",
                 text: "out of memory: " + sizeText(oom.asked_bytes) + " requested"});
  }
  drawLabels(timeline, placeLabels(timeline, labels));
}

// Beside the point, where no other label is: above it, or below. A label without a place is left out.
function placeLabels(timeline, labels) {
  const {plot, x} = timeline, taken = [];
  const visible = labels.filter(label => label.x >= plot.left - 1 && label.x <= plot.right + 1);
  for (const label of visible) {
    const width = label.text.length * 6.7 + 10;
    const sides = label.x + width + 8 > plot.right ? [-width - 6, 6] : [6, -width - 6];
    for (const [dy, dx] of [-12, 13, 30].flatMap(dy => sides.map(dx => [dy, dx]))) {
      const left = Math.max(plot.left + 2, Math.min(plot.right - width, label.x + dx)), top = label.y + dy - 9;
      const free = taken.every(box => left + width < box[0] || box[0] + box[2] < left || Math.abs(top - box[1]) > 19);
      if (!free || top < plot.top - MARGIN.top) continue;
      taken.push([left, top, width]);
      Object.assign(label, {left, top, width});
      break;
    }
  }
  return visible;
}

function drawLabels(timeline, labels) {
  const {plot, axes} = timeline, all = axes.select(".labels");
  all.selectAll("*").remove();
  for (const label of labels) {
    const group = all.append("g").attr("class", label.name);
    if (label.line) group.append("line").attr({x1: plot.left, x2: plot.right, y1: label.y, y2: label.y});
    if (label.dot) group.append("circle").attr({cx: label.x, cy: label.y, r: 3.5});
    if (label.width === undefined) continue;
    group.append("rect").attr({x: label.left, y: label.top, width: label.width, height: 18, rx: 3});
    group.append("text").attr({x: label.left + 5, y: label.top + 13}).text(label.text);
  }
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
