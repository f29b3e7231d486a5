// The table of the largest tensors at the peak, or at the instant of the pinned cursor.

const ROWS_AT_FIRST = 25;
const NAME_COLUMNS = [["category", 14], ["module", 38], ["operation", 34], ["line", 30]];

class Largest {
  constructor(report, root) {
    Object.assign(this, {report, root, trace: report.trace, shown: ROWS_AT_FIRST});
    const {whats, names, categories} = this.trace.about;
    this.columns = NAME_COLUMNS.filter((_, field) =>
      whats.some(what => (field ? names[what[field]] : categories[what[0]]) && what[field] > 0));
    this.root.querySelector(".more").addEventListener("click", () => {
      this.shown += 4 * ROWS_AT_FIRST;
      this.draw();
    });
    const head = (name, kind = "") => element("th", {scope: "col", class: kind}, name);
    const named = this.columns.map(([name]) => head(name));
    root.querySelector("thead").replaceChildren(
      element("tr", {}, element("th"), head("size", "size"), head("share", "size"), ...named, head("allocated at")));
  }

  draw() {
    const {trace, root, report} = this, {timeline, page} = report, peak = trace.about.peak.instant;
    const instant = timeline.pinned ? timeline.cursor : peak, tensors = largestAt(trace, page.groups, instant);
    const place = instant === peak ? "the peak" : momentText(trace, instant);
    root.querySelector("h3").textContent = `${report.label}Largest tensors at ${place}`;
    root.dataset.instant = instant;
    const bytes = d3.sum(tensors, t => trace.bytes[t]);
    const count = ofMany(tensors.length, "tensor") + (page.filtered ? " of the filter, " : ", ");
    root.querySelector(".sum").replaceChildren(count, sizeElement("span", bytes), " requested");
    root.querySelector("tbody").replaceChildren(...tensors.slice(0, this.shown).map(t => this.row(t, instant)));
    const more = root.querySelector(".more"), left = tensors.length - this.shown;
    more.hidden = left <= 0;
    more.textContent = `Show ${countText(Math.min(left, 4 * ROWS_AT_FIRST))} more`;
  }

  row(tensor, instant) {
    const {trace, report} = this, {timeline, page} = report, names = tensorNames(trace, tensor);
    const swatch = element("i", {class: "swatch", style: `background:${page.groups.list[trace.shown[tensor]].color}`});
    const size = sizeElement("td", trace.bytes[tensor], undefined, {class: "size"});
    const cells = this.columns.map(([name, length]) => nameCell(names[name], length));
    const show = () => timeline.pinned || timeline.setCursor(instant, tensor);
    return element("tr", {mouseenter: show, mouseleave: () => timeline.pinned || timeline.setCursor(-1)},
                   element("td", {class: "color"}, swatch), size,
                   element("td", {class: "size"}, shareText(trace.bytes[tensor], trace.allocated[instant])), ...cells,
                   element("td", {class: "moment"}, momentText(trace, trace.born[tensor])));
  }
}
