// The strip below a timeline: the whole trace, and a brush that shows and moves the window.

class Overview {
  constructor(timeline, root) {
    this.timeline = timeline;
    this.canvas = root.querySelector("canvas");
    this.svg = d3.select(root).select("svg");
    this.brush = d3.svg.brush().on("brush", () => this.brushed());
    timeline.overview = this;
  }

  brushed() {
    if (this.brush.empty()) this.timeline.setWindow(...this.timeline.whole);
    else this.timeline.setWindow(...this.brush.extent());
  }

  draw() {
    const {timeline} = this, {trace} = timeline, box = this.canvas.getBoundingClientRect();
    const context = cleanCanvas(this.canvas), left = MARGIN.left, width = Math.max(50, box.width - left - MARGIN.right);
    const samples = chooseSamples(trace, timeline.axis, ...timeline.whole, width, 1);
    const y = d3.scale.linear().domain([0, timeline.report.page.top]).range([box.height - 1, 2]);
    const strip = {samples, plot: {left, bottom: box.height}, y};
    fillBelow(context, strip, samples.reserved, themeColor("cache"));
    fillBelow(context, strip, Float64Array.from(samples.instant, i => trace.allocated[i]), themeColor("silhouette"));
    this.x = d3.scale.linear().domain(timeline.whole).range([left, left + width]);
    this.brush.x(this.x);
    this.svg.select("g").call(this.brush).selectAll("rect").attr({y: 1, height: box.height - 2});
    this.show(timeline.window);
  }

  show(window) {
    if (!this.x) return;
    if (this.timeline.zoomed) this.brush.extent(window);
    else this.brush.clear();
    this.svg.select("g").call(this.brush);
  }
}
