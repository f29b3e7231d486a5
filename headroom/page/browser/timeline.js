// One timeline: its window on the x axis, its scales, and what the pointer is on. paint.js draws it,
// pointer.js moves it.

const MARGIN = {left: 66, right: 14, top: 26, bottom: 26}, BAND = 20;

class Timeline {
  constructor(report, root) {
    Object.assign(this, {report, trace: report.trace, root, cursor: -1, tensor: -1, pinned: false, area: "none"});
    this.areas = root.querySelector(".areas");
    this.over = root.querySelector(".over");
    this.axes = d3.select(root).select(".axes");
    this.outlines = [];
    this.onWindow = this.onCursor = () => {};
    this.showAll();
  }

  get axis() { return this.trace.axes[this.report.page.axis] || this.trace.axes.events; }
  get whole() { return [this.axis[0], this.axis[this.trace.instants]]; }
  get zoomed() { return this.window[0] > this.whole[0] || this.window[1] < this.whole[1]; }

  showAll() {
    this.window = this.whole;
    this.requestDraw();
  }

  // The width of about four instants at a position.
  leastSpan(position) {
    const at = d3.bisectRight(this.axis, position) - 1, last = this.trace.instants;
    const span = this.axis[Math.min(last, at + 3)] - this.axis[Math.max(0, at - 2)];
    return Math.max(span, 1e-9 * (this.whole[1] - this.whole[0]));
  }

  // Keeps the window inside the trace, and at least some instants wide.
  setWindow(from, to, tell = true) {
    const [start, end] = this.whole;
    const span = Math.min(Math.max(to - from, this.leastSpan((from + to) / 2)), end - start);
    from = Math.max(start, Math.min((from + to - span) / 2, end - span));
    this.window = [from, from + span];
    this.requestDraw();
    if (tell) this.onWindow((from - start) / (end - start), (from + span - start) / (end - start));
  }

  // As shares of the whole axis: two traces of a diff are linked by them.
  setShares(from, to) {
    const [start, end] = this.whole;
    this.setWindow(start + from * (end - start), start + to * (end - start), false);
  }

  zoom(factor, center = (this.window[0] + this.window[1]) / 2) {
    this.setWindow(center - (center - this.window[0]) * factor, center + (this.window[1] - center) * factor);
  }

  pan(share) {
    const by = (this.window[1] - this.window[0]) * share;
    this.setWindow(this.window[0] + by, this.window[1] + by);
  }

  // Sizes and scales in CSS pixels.
  measure() {
    const box = this.areas.getBoundingClientRect();
    this.unit = 1 / (window.devicePixelRatio || 1);
    this.plot = {left: MARGIN.left, top: 4 + this.trace.bands.length * BAND + MARGIN.top,
                 right: Math.max(MARGIN.left + 50, box.width - MARGIN.right), bottom: box.height - MARGIN.bottom};
    this.plot.width = this.plot.right - this.plot.left;
    this.x = d3.scale.linear().domain(this.window).range([this.plot.left, this.plot.right]);
    this.y = d3.scale.linear().domain([0, this.report.page.top]).range([this.plot.bottom, this.plot.top]);
  }

  requestDraw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    const {trace} = this;
    this.measure();
    this.samples = chooseSamples(trace, this.axis, ...this.window, this.plot.width, this.unit);
    Object.assign(this, stackOf(trace, this.report.page.groups, this.samples));
    this.outlines = [];
    paintAreas(this);
    paintAxes(this);
    paintOver(this);
    if (this.overview) this.overview.show(this.window);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.drawOutlines(), 120);
  }

  // After zooming has ended: it takes longer than a frame.
  drawOutlines() {
    const height = 3 * this.report.page.top / (this.plot.bottom - this.plot.top);
    const tensors = outlinedTensors(this.trace, this.report.page.groups, this.samples, this.index, height, 6);
    const offsets = offsetsOf(this.trace, this.samples, this.index, tensors);
    this.outlines = tensors.map((tensor, i) => ({tensor, offsets: offsets[i]}));
    paintAreas(this);
  }

  // The sample at a position of the mouse.
  sampleAt(x) {
    const {left, count} = this.samples;
    return Math.max(0, d3.bisectRight(left, x - this.plot.left, 0, count) - 1);
  }

  pixelOf(instant) {
    return Math.min(this.x(this.axis[instant + 1]), (this.x(this.axis[instant]) + this.x(this.axis[instant + 1])) / 2);
  }

  // What lies at so many bytes above zero, as {area, tensor, group}.
  hit(instant, bytes) {
    const groups = this.report.page.groups, sums = groupBytesAt(this.trace, groups, instant);
    let bottom = 0;
    for (let group = 0; group < sums.length; group++) {
      if (bytes < bottom + sums[group]) {
        if (group === groups.rounding) return {area: "rounding", tensor: -1};
        return {area: "tensor", tensor: tensorInBand(this.trace, group, instant, bytes - bottom)};
      }
      bottom += sums[group];
    }
    return {area: bytes >= 0 && bytes < this.trace.reserved[instant] ? "cache" : "none", tensor: -1};
  }

  // Of the tensor under the cursor; kept while it and the window stay the same.
  offsets() {
    if (!this.kept || this.kept.tensor !== this.tensor || this.kept.index !== this.index) {
      this.kept = {tensor: this.tensor, index: this.index, offsets: offsetsOfOne(this.trace, this.index, this.tensor)};
    }
    return this.kept.offsets;
  }

  setCursor(instant, tensor = -1, area = tensor < 0 ? "none" : "tensor") {
    if (instant === this.cursor && tensor === this.tensor && area === this.area) return;
    Object.assign(this, {cursor: instant, tensor, area});
    paintOver(this);
    this.onCursor();
  }

  // Moves the window if the instant is outside.
  reveal(instant) {
    const from = this.axis[instant], to = this.axis[instant + 1], span = this.window[1] - this.window[0];
    if (from < this.window[0]) this.setWindow(from - span / 4, from + 3 * span / 4);
    else if (to > this.window[1]) this.setWindow(to - 3 * span / 4, to + span / 4);
    else return;
    this.draw();
  }
}
