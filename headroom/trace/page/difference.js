// The table of a diff: what makes the peak of B higher or lower than that of A.

function differenceRow(part, name = "td") {
  const size = (bytes, text) => sizeElement("td", bytes, text, {class: "size"});
  const step = part.step === undefined ? "" : part.step === 0 ? "before step 1" : String(part.step);
  return element("tr", {}, size(part.bytes, differenceText(part.bytes)), size(part.a_bytes), size(part.b_bytes),
                 element(name, {}, step), element(name, {}, part.phase || ""), nameCell(part.module || "", 40),
                 nameCell(part.category || "", 20));
}

function showDifference(diff, root) {
  root.hidden = false;
  const {parts, reasons, a, b} = diff, rows = parts.map(part => differenceRow(part));
  root.querySelector(".sentence").textContent = diff.peak_difference_bytes === 0 ? "Both peaks are equal." :
    `The peak of B is ${sizeText(Math.abs(diff.peak_difference_bytes))} ` +
    `${diff.peak_difference_bytes > 0 ? "higher" : "lower"} than that of A.`;
  root.querySelector(".reasons").replaceChildren(...reasons.map(reason => element("li", {}, reason)));
  root.querySelector(".parts").hidden = parts.length === 0;
  const more = root.querySelector(".more");
  rows.slice(ROWS_AT_FIRST).forEach(row => row.classList.add("folded"));
  more.hidden = rows.length <= ROWS_AT_FIRST;
  more.textContent = `Show ${countText(rows.length - ROWS_AT_FIRST)} more`;
  more.addEventListener("click", () => {
    rows.forEach(row => row.classList.remove("folded"));
    more.hidden = true;
  });
  root.querySelector("tbody").replaceChildren(...rows);
  const sum = differenceRow({bytes: d3.sum(parts, part => part.bytes), a_bytes: a.peak_allocated_bytes,
                             b_bytes: b.peak_allocated_bytes, module: "peak allocated"}, "th");
  root.querySelector("tfoot").replaceChildren(sum);
}
