// The allocator's segments at the peak, one after the other as text runs: each as wide as its bytes, with
// its blocks in order. A segment wider than the page goes on in the next row.

const SEGMENT_ROW = 20, SEGMENT_HEIGHT = 15, SEGMENT_GAP = 3, LEAST_SEGMENT = 3;

// Pieces {segment, row, x, width, from}: `from` is the piece's first pixel within its segment.
function layOut(segments, width, pixelsPerByte) {
  const pieces = [];
  let row = 0, x = 0;
  segments.forEach((segment, index) => {
    const whole = Math.max(LEAST_SEGMENT, segment.bytes * pixelsPerByte);
    if (x > 0 && x + whole > width) [row, x] = [row + 1, 0];
    for (let from = 0; from < whole - 0.01;) {
      const part = Math.min(width - x, whole - from);
      pieces.push({index, row, x, width: part, from, whole});
      from += part;
      x += part;
      if (from < whole - 0.01) [row, x] = [row + 1, 0];
    }
    x += SEGMENT_GAP;
  });
  return {pieces, rows: row + 1};
}

// The widest scale that needs no more than about 16 rows; fewer for less than a GiB.
function bestLayout(segments, width) {
  const bytes = d3.sum(segments, segment => segment.bytes);
  const rows = Math.max(1, Math.min(16, Math.ceil(bytes / (64 * MIB))));
  let pixelsPerByte = rows * width / bytes, layout = layOut(segments, width, pixelsPerByte);
  for (let i = 0; i < 30 && layout.rows > rows + 2; i++) layout = layOut(segments, width, pixelsPerByte *= 0.88);
  return layout;
}

function segmentFigures(segments) {
  const free = segments.flatMap(({blocks}) => blocks.filter(([, tensor]) => tensor < 0).map(([size]) => size));
  const reserved = d3.sum(segments, segment => segment.bytes);
  return {reserved, allocated: reserved - d3.sum(free), free: d3.sum(free), largestFree: d3.max(free) || 0};
}

class Segments {
  constructor(report, root) {
    Object.assign(this, {report, root, trace: report.trace, canvas: root.querySelector("canvas"), at: null});
    this.segments = report.trace.segments.slice().sort((a, b) =>
      a.pool - b.pool || a.stream - b.stream || b.bytes - a.bytes);
    root.hidden = this.segments.length === 0;
    root.querySelector("h3").textContent = report.label + "Segments of the allocator at the peak";
    this.tell();
    this.canvas.addEventListener("pointermove", event => this.pointAt(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("keydown", event => this.pressed(event));
    this.canvas.addEventListener("blur", () => this.leave());
  }

  tell() {
    const {reserved, allocated, free, largestFree} = segmentFigures(this.segments);
    const figure = (name, bytes) => [name, sizeElement("span", bytes, undefined, {class: name.replace(/ /g, "-")})];
    const rows = [["segments", countText(this.segments.length)], figure("reserved", reserved),
                  figure("allocated", allocated), figure("free in segments", free),
                  figure("largest free block", largestFree)];
    if (free) rows.push(["free outside the largest block", shareText(free - largestFree, free)]);
    this.root.querySelector("dl").replaceChildren(
        ...rows.map(row => element("div", {}, ...definitions([row]))));
  }

  draw() {
    if (this.segments.length === 0) return;
    this.layout = bestLayout(this.segments, Math.max(50, this.canvas.parentElement.clientWidth));
    this.canvas.style.height = this.layout.rows * SEGMENT_ROW + "px";
    const context = cleanCanvas(this.canvas);
    this.free = hatch(context, themeColor("hatch"), themeColor("page"), 6);
    for (const piece of this.layout.pieces) this.drawPiece(context, piece);
  }

  drawPiece(context, piece) {
    const {page} = this.report, segment = this.segments[piece.index], scale = piece.whole / segment.bytes;
    const top = piece.row * SEGMENT_ROW + 1;
    let offset = 0;
    for (const [size, tensor] of segment.blocks) {
      const left = Math.max(piece.from, offset * scale);
      const right = Math.min(piece.from + piece.width, (offset += size) * scale);
      if (right <= left) continue;
      context.fillStyle = tensor < 0 ? this.free : page.groups.list[this.trace.shown[tensor]].color;
      context.fillRect(piece.x + left - piece.from, top, right - left - (right - left > 4 ? 0.5 : 0), SEGMENT_HEIGHT);
    }
    context.strokeStyle = themeColor("muted");
    context.lineWidth = 0.75;
    context.strokeRect(piece.x + 0.4, top, piece.width - 0.8, SEGMENT_HEIGHT);
  }

  // {segment, block} as indices.
  blockAt(x, y) {
    const row = Math.floor(y / SEGMENT_ROW);
    const piece = this.layout.pieces.find(each => each.row === row && each.x <= x && x < each.x + each.width);
    if (!piece) return null;
    const segment = this.segments[piece.index], at = (x - piece.x + piece.from) / piece.whole * segment.bytes;
    let end = 0;
    const block = segment.blocks.findIndex(([size]) => (end += size) > at);
    return block < 0 ? null : {segment: piece.index, block};
  }

  pointAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = this.blockAt(event.clientX - box.left, event.clientY - box.top);
    if (!at) return this.leave();
    this.show(at, {x: event.clientX, y: event.clientY});
  }

  rows({segment, block}) {
    const {address, bytes, stream, pool, expandable, blocks} = this.segments[segment], tensor = blocks[block][1];
    const words = ["0x" + address.toString(16), sizeText(bytes), expandable && "expandable", pool && "pool " + pool,
                   stream && "stream " + stream].filter(word => word);
    const rows = tensor < 0 ? [["block", "free"]]
      : [["requested", exactText(this.trace.bytes[tensor])], ...tensorRows(this.trace, tensor)];
    return [...rows, ["segment", words.join(", ")]];
  }

  show(at, pointer) {
    this.at = at;
    const [size] = this.segments[at.segment].blocks[at.block], rows = this.rows(at);
    const head = element("div", {class: "head"}, element("strong", {}, sizeText(size)),
                         element("span", {class: "exact"}, exactText(size)));
    const top = Math.floor((pointer.y - this.canvas.getBoundingClientRect().top) / SEGMENT_ROW) * SEGMENT_ROW;
    const row = this.canvas.getBoundingClientRect().top + top;
    this.mark(at);
    showTooltip([head, element("dl", {}, ...definitions(rows))], pointer,
                (left, right) => ({left, right, top: row, bottom: row + SEGMENT_ROW}), false);
    return rows;
  }

  // A frame around each piece of the block.
  mark({segment, block}) {
    const {blocks, bytes: whole} = this.segments[segment], start = d3.sum(blocks.slice(0, block), each => each[0]);
    const pieces = this.layout.pieces.filter(piece => piece.index === segment), scale = pieces[0].whole / whole;
    this.unmark();
    for (const {row, x, from, width} of pieces) {
      const left = Math.max(from, start * scale), right = Math.min(from + width, (start + blocks[block][0]) * scale);
      if (right <= left) continue;
      const style = `left:${x + left - from}px; width:${right - left}px; top:${row * SEGMENT_ROW + 1}px`;
      this.canvas.after(element("i", {class: "marker", style: `${style}; height:${SEGMENT_HEIGHT}px`}));
    }
  }

  unmark() { this.root.querySelectorAll(".marker").forEach(marker => marker.remove()); }

  leave() {
    this.at = null;
    this.unmark();
    hideTooltip();
  }

  // Left and right go from block to block.
  pressed(event) {
    const step = STEP_KEYS[event.key], next = step && this.neighbour(step);
    if (!next) return;
    event.preventDefault();
    const rows = this.show(next, this.pixelOf(next.segment, next.block));
    const size = this.segments[next.segment].blocks[next.block][0];
    this.report.live.textContent = spokenRows(sizeText(size), rows);
  }

  // The block after (1) or before (-1) the shown one; at first the first. Nothing beyond the ends.
  neighbour(step) {
    if (!this.at) return {segment: 0, block: 0};
    const {segment, block} = this.at, blocks = this.segments[segment].blocks;
    if (block + step in blocks) return {segment, block: block + step};
    const next = this.segments[segment + step];
    return next && {segment: segment + step, block: step > 0 ? 0 : next.blocks.length - 1};
  }

  pixelOf(index, block) {
    const segment = this.segments[index], box = this.canvas.getBoundingClientRect();
    const bytes = d3.sum(segment.blocks.slice(0, block), each => each[0]) + segment.blocks[block][0] / 2;
    const pieces = this.layout.pieces.filter(piece => piece.index === index);
    const at = bytes / segment.bytes * pieces[0].whole;
    const piece = pieces.find(each => at <= each.from + each.width) || pieces[0];
    return {x: box.left + piece.x + at - piece.from, y: box.top + (piece.row + 0.5) * SEGMENT_ROW};
  }
}
