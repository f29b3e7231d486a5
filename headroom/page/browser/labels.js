// The axes of a timeline, and the names of its peaks, of its capacity and of refused requests: SVG above the canvas.

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
  const count = Math.max(2, Math.round(plot.width / 120)), step = (timeline.window[1] - timeline.window[0]) / count / 2;
  const text = byTime ? value => timeText(value, timeline.whole[1], step) : value => value % 1 ? "" : countText(value);
  const x = d3.svg.axis().scale(timeline.x).orient("bottom").ticks(count).tickSize(5, 0).tickFormat(text);
  axes.select(".y").attr("transform", `translate(${plot.left},0)`).call(y);
  axes.select(".x").attr("transform", `translate(0,${plot.bottom})`).call(x).selectAll("text")
      .style("text-anchor", value => timeline.x(value) > plot.right - 24 ? "end" : "middle");
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
  const {ooms} = about, top = timeline.plot.top - 14;
  if (ooms.length > MOST_LINES) {
    labels.push({x: x(axis[ooms[0].instant]), y: top, name: "oom", text: `${countText(ooms.length)} refused requests`});
  } else for (const {instant, asked_bytes: asked} of ooms) {
    labels.push({x: x(axis[instant]), y: top, name: "oom", text: `out of memory: ${sizeText(asked)} requested`});
  }
  drawLabels(timeline, placeLabels(timeline, labels));
}

// Beside the point, where no other label is: above it, or below. A label without a place is left out.
function placeLabels(timeline, labels) {
  const {plot, x} = timeline, taken = [];
  const pen = timeline.areas.getContext("2d");
  const visible = labels.filter(label => label.x >= plot.left - 1 && label.x <= plot.right + 1);
  for (const label of visible) {
    const width = pen.measureText(label.text).width + 10;
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
