// The table of a diff: what makes the peak of B higher or lower than that of A.

const PART_COLUMNS = [["phase", part => part.phase], ["module", part => part.module],
                      ["category", part => part.category]];

// The columns in which some part tells something.
function knownColumns(parts) {
  const known = value => value && value !== "unknown";
  return PART_COLUMNS.filter(([, value]) => parts.some(part => known(value(part))));
}

function differenceRow(part, cells) {
  const size = (bytes, text) => sizeElement("td", bytes, text, {class: "size"});
  return element("tr", {}, size(part.bytes, differenceText(part.bytes)), size(part.a_bytes), size(part.b_bytes),
                 ...cells);
}

function showDifference(diff, root) {
  root.hidden = false;
  const {parts, reasons, a, b} = diff, columns = knownColumns(parts);
  const cell = text => nameCell(text && text !== "unknown" ? text : "", 44);
  const rows = parts.map(part => differenceRow(part, columns.map(([, value]) => cell(value(part)))));
  root.querySelector("thead tr").append(...columns.map(([name]) => element("th", {scope: "col"}, name)));
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
                             b_bytes: b.peak_allocated_bytes},
                            [element("th", {colspan: Math.max(1, columns.length)}, "peak allocated")]);
  root.querySelector("tfoot").replaceChildren(sum);
}
