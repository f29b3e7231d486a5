// What the page says of an instant and of a tensor: the same in the tooltip and in the line of text that
// a screen reader speaks.

// "event 48, step 1, forward, 1.20 s", as far as it is known.
function momentText(trace, instant) {
  const {about} = trace, words = ["event " + countText(trace.event[instant])];
  const step = pairAt(about.steps, instant), phase = pairAt(about.phases, instant);
  if (step) words.push("step " + step);
  if (phase && phase !== "unknown") words.push(phase);
  if (trace.seconds) words.push(timeText(trace.seconds[instant], trace.seconds[trace.instants - 1]));
  return words.join(", ");
}

const totalsText = (trace, instant) =>
  `${sizeText(trace.allocated[instant])} allocated, ${sizeText(trace.reserved[instant])} reserved`;

// Rows [name, value] of a tensor; unknown names have no row.
function tensorRows(trace, tensor) {
  const names = tensorNames(trace, tensor), died = trace.died[tensor];
  const rows = Object.entries(names).filter(([, name]) => name);
  rows.push(["allocated", momentText(trace, trace.born[tensor])]);
  rows.push(["freed", died < trace.instants ? momentText(trace, died) : "never: it lives to the end"]);
  return rows;
}

// What lies under the cursor: {title, rows}.
function describe(trace, {area, tensor, cursor}) {
  if (area === "tensor") {
    const bytes = trace.bytes[tensor];
    return {title: sizeText(bytes), exact: exactText(bytes), rows: tensorRows(trace, tensor)};
  }
  const bytes = area === "cache" ? trace.reserved[cursor] - trace.allocated[cursor] : 0;
  if (area === "cache") return {title: "cache", exact: exactText(bytes), rows: [["what", "reserved, not allocated"]]};
  if (area === "rounding") return {title: "rounding", exact: "", rows: [["what", "block sizes minus requested bytes"]]};
  return {title: "", exact: "", rows: []};
}

const spokenRows = (title, rows) => `${title}: ${rows.map(row => row.join(" ")).join("; ")}.`;

function spokenText(trace, pointed) {
  const {title, exact, rows} = describe(trace, pointed);
  const place = `At ${momentText(trace, pointed.cursor)}: ${totalsText(trace, pointed.cursor)}.`;
  return title ? `${place} ${spokenRows(title + (exact ? ` (${exact})` : ""), rows)}` : place;
}
