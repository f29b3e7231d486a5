// Sizes, counts and times as text, and elements of the page.

const KIB = 1024, MIB = KIB * 1024, GIB = MIB * 1024, TIB = GIB * 1024;

// As everywhere in Headroom: a size that would print as "1024.0" takes the next unit.
function sizeText(bytes) {
  const size = Math.abs(bytes), sign = bytes < 0 ? "-" : "";
  if (size < KIB) return sign + size + " B";
  if (size < 1023.95 * KIB) return sign + (size / KIB).toFixed(1) + " KiB";
  if (size < 1023.95 * MIB) return sign + (size / MIB).toFixed(1) + " MiB";
  if (size < 1023.995 * GIB) return sign + (size / GIB).toFixed(2) + " GiB";
  return sign + (size / TIB).toFixed(2) + " TiB";
}

const differenceText = bytes => (bytes > 0 ? "+" : "") + sizeText(bytes);
const counts = new Intl.NumberFormat("en-US"), countText = count => counts.format(count);
const exactText = bytes => countText(bytes) + (bytes === 1 ? " byte" : " bytes");
const shareText = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "";
const ofMany = (count, noun) => `${countText(count)} ${noun}${count === 1 ? "" : "s"}`;

// In the unit that suits `whole`; times that differ by `step`, such as two ticks, differ in text.
function timeText(seconds, whole, step = whole / 10000) {
  const [unit, factor] = whole < 1e-3 ? ["µs", 1e6] : whole < 1 ? ["ms", 1e3] : ["s", 1];
  const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step * factor || 1) - 1e-9)));
  return (seconds * factor).toFixed(digits) + " " + unit;
}

// Keeps both ends of a long name: "transformer.h…mlp.c_fc".
function middleCut(text, length) {
  if (text.length <= length) return text;
  const tail = Math.ceil((length - 1) * 0.6);
  return text.slice(0, length - 1 - tail) + "…" + text.slice(-tail);
}

// element("td", {class: "size"}, "4 KiB", otherElement)
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter(child => child !== null));
  return made;
}

// A size with its exact bytes: for a reader in the title, for a program in data-bytes.
function sizeElement(name, bytes, text = sizeText(bytes), attributes = {}) {
  return element(name, {"data-bytes": bytes, title: exactText(bytes), ...attributes}, text);
}

function nameCell(text, length) {
  return text === "" ? element("td", {class: "unknown"}, "–")
                     : element("td", {title: text}, middleCut(text, length));
}

function definitions(rows) {
  return rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
}
