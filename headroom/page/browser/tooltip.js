// The box that describes what is under the pointer. It never covers that.

function tooltipContent(trace, pointed) {
  const {title, exact, rows} = describe(trace, pointed);
  const head = title ? [element("strong", {}, title), element("span", {class: "exact"}, exact)] : [];
  const cut = rows.map(([name, value]) => [name, middleCut(value, 46)]);
  return [element("div", {class: "head"}, ...head), element("dl", {}, ...definitions(cut)),
          element("div", {class: "moment"}, "At ", momentText(trace, pointed.cursor), ":", element("br"),
                  totalsText(trace, pointed.cursor))];
}

function overlap(a, b) {
  return Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) *
         Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
}

// `pointer`: {x, y} in the viewport. `covered`: gives the box of the thing described between two positions
// of x. Takes the place that covers least of it; the nearest of equal ones.
function placeTooltip(box, pointer, covered) {
  const {offsetWidth: width, offsetHeight: height} = box, gap = 16;
  const mostLeft = document.documentElement.clientWidth - width - 6, mostTop = window.innerHeight - height - 6;
  const lefts = [pointer.x + gap, pointer.x - gap - width, 6, mostLeft];
  let best = null;
  for (const wanted of lefts) {
    const left = Math.max(6, Math.min(mostLeft, wanted)), thing = covered(left, left + width);
    const tops = thing ? [thing.top - height - 8, thing.bottom + 8] : [];
    for (const place of [pointer.y + gap, pointer.y - gap - height, ...tops]) {
      const top = Math.max(6, Math.min(mostTop, place));
      const rect = {left, top, right: left + width, bottom: top + height};
      const hidden = (thing ? overlap(rect, thing) : 0) + 4 * overlap(rect, {
        left: pointer.x - 8, right: pointer.x + 8, top: pointer.y - 8, bottom: pointer.y + 8});
      const distance = Math.hypot(left + width / 2 - pointer.x, top + height / 2 - pointer.y);
      if (!best || hidden < best.hidden - 1 || (hidden <= best.hidden + 1 && distance < best.distance)) {
        best = {left, top, hidden, distance};
      }
    }
  }
  box.style.left = best.left + window.scrollX + "px";
  box.style.top = best.top + window.scrollY + "px";
}

function showTooltip(content, pointer, covered, pinned) {
  const box = document.getElementById("tooltip");
  box.replaceChildren(...content);
  box.hidden = false;
  box.classList.toggle("pinned", pinned);
  placeTooltip(box, pointer, covered);
}

function hideTooltip() { document.getElementById("tooltip").hidden = true; }
