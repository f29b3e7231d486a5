// The table beside a timeline: what the colours mean, and how much memory each has at the cursor and at
// the peak. Its rows lie as the areas do, and add up: reserved = cache + allocated, allocated = the rest.

class Legend {
  constructor(report, table) {
    Object.assign(this, {report, table, trace: report.trace, rows: []});
  }

  // Once for each grouping.
  build() {
    const {page} = this.report, {list, unmatched} = page.groups;
    const row = (name, swatch, kind) => {
      const cells = ["here", "share", "peak"].map(column => element("td", {class: column}));
      const head = element("th", {scope: "row"}, swatch, name);
      return {kind, cells, element: element("tr", {class: kind}, head, ...cells)};
    };
    const total = name => row(name, element("i", {class: "swatch " + name}), name);
    const group = g => {
      const swatch = element("i", {class: "swatch", style: `background:${list[g].color}`});
      if (g >= unmatched) return row(list[g].label, swatch, g === unmatched ? "unmatched" : "rounding");
      const name = element("button", {type: "button", title: list[g].label, click: () => page.single(g)},
                           middleCut(list[g].label, 22));
      return {...row(name, swatch, "group"), button: name};
    };
    const groups = d3.range(list.length - 1, -1, -1).map(g => ({...group(g), g}));
    this.rows = [total("reserved"), total("cache"), total("allocated"), ...groups];
    this.table.tBodies[0].replaceChildren(...this.rows.map(each => each.element));
    this.update();
  }

  update() {
    const {trace, report} = this, {page} = report, peak = trace.about.peak.instant, {cursor} = report.timeline;
    const instant = cursor < 0 ? peak : cursor;
    const here = this.bytesAt(instant), there = instant === peak ? here : this.bytesAt(peak);
    this.table.dataset.instant = instant;
    const place = cursor < 0 ? "at the peak" : "event " + countText(trace.event[instant]);
    this.table.querySelector(".here-name").textContent = place;
    this.table.classList.toggle("at-peak", cursor < 0);
    for (const each of this.rows) {
      const key = each.g === undefined ? each.kind : each.g;
      this.fill(each.cells, here[key], there[key], here.allocated);
      if (each.kind === "unmatched") each.element.hidden = !page.filtered;
      if (each.kind === "reserved" || each.kind === "cache") each.cells[1].textContent = "";
      each.element.classList.toggle("none", here[key] === 0 && there[key] === 0);
      if (each.button) each.button.setAttribute("aria-pressed", page.only === each.g);
    }
  }

  fill([here, share, peak], bytes, peakBytes, allocated) {
    for (const [cell, value] of [[here, bytes], [peak, peakBytes]]) {
      cell.textContent = sizeText(value);
      cell.dataset.bytes = value;
      cell.title = exactText(value);
    }
    share.textContent = shareText(bytes, allocated);
  }

  bytesAt(instant) {
    const {trace} = this, allocated = trace.allocated[instant], reserved = trace.reserved[instant];
    const sums = groupBytesAt(trace, this.report.page.groups, instant);
    return {reserved, allocated, cache: reserved - allocated, ...sums};
  }
}

// The sentence under the filter's field, which tells of all tensors while there is no filter.
function filterText(page) {
  return page.reports.map(({trace, label: name}) => {
    const figures = filterFigures(trace, page.groups);
    if (figures.tensors === 0) return element("span", {"data-tensors": 0}, name + "no tensor matches.");
    const which = name + (page.filtered ? "" : "All ") + ofMany(figures.tensors, "tensor") + ": ";
    return element("span", {"data-tensors": figures.tensors}, which,
                   sizeElement("b", figures.atPeak, undefined, {class: "at-peak"}), " requested at the peak; at most ",
                   sizeElement("b", figures.peak, undefined, {class: "own-peak", "data-instant": figures.instant}),
                   ` at event ${countText(trace.event[figures.instant])}. `);
  });
}
