// The memory of each group at chosen instants. One pass over the tensors finds it for any window.

// The instants to draw in `width` pixels from `from` to `to`. Where several instants fall into one pixel
// (`unit`) the highest is drawn, so that no peak is lost; elsewhere each has its exact place.
function chooseSamples(trace, axis, from, to, width, unit) {
  const scale = width / (to - from), most = Math.ceil(width / unit) + 2;
  const samples = {count: 0, instant: new Uint32Array(most), left: new Float64Array(most),
                   right: new Float64Array(most), reserved: new Float64Array(most)};
  const first = Math.max(0, d3.bisectRight(axis, from) - 1);
  const end = Math.min(trace.instants, d3.bisectLeft(axis, to));
  let left = 0, best = -1, reserved = 0;
  const place = value => Math.max(0, Math.min(width, Math.round((value - from) * scale / unit) * unit));
  const emit = right => {
    const at = samples.count++;
    samples.instant[at] = best;
    samples.left[at] = left;
    samples.right[at] = left = right;
    samples.reserved[at] = reserved;
    best = -1;
    reserved = 0;
  };
  for (let i = first; i < end; i++) {
    const right = place(axis[i + 1]);
    if (best >= 0 && right - left >= 2 * unit && left < width - unit) emit(Math.max(left + unit, place(axis[i])));
    if (best < 0 || trace.allocated[i] > trace.allocated[best]) best = i;
    reserved = Math.max(reserved, trace.reserved[i]);
    if (right - left >= unit) emit(right);
  }
  if (best >= 0 && left < width) emit(width);
  return samples;
}

// For each instant the first sample at or after it.
function sampleIndex(trace, samples) {
  const index = new Uint32Array(trace.instants + 1).fill(samples.count);
  let from = 0;
  for (let s = 0; s < samples.count; s++) {
    index.fill(s, from, samples.instant[s] + 1);
    from = samples.instant[s] + 1;
  }
  return index;
}

// tops[group][sample]: the top of the group's band, in bytes.
function stackOf(trace, groups, samples) {
  const index = sampleIndex(trace, samples), count = samples.count;
  const tops = groups.list.map(() => new Float64Array(count + 1)), rounding = tops[groups.rounding];
  for (let t = 0; t < trace.count; t++) {
    const from = index[trace.born[t]], to = index[trace.died[t]];
    if (from === count) break;
    if (from === to) continue;
    const top = tops[trace.shown[t]];
    top[from] += trace.bytes[t];
    top[to] -= trace.bytes[t];
    rounding[from] += trace.rounding[t];
    rounding[to] -= trace.rounding[t];
  }
  tops.forEach((top, g) => {
    runningSum(top);
    if (g > 0) for (let s = 0; s < count; s++) top[s] += tops[g - 1][s];
  });
  return {tops, index};
}

const livesAt = (trace, tensor, instant) => trace.born[tensor] <= instant && instant < trace.died[tensor];

// Calls visit(tensor) in order of birth.
function forLiving(trace, instant, visit) {
  const {born, died} = trace;
  for (let t = 0; t < trace.count && born[t] <= instant; t++) if (instant < died[t]) visit(t);
}

// Kept for some instants, as each move of the mouse asks for those of two several times.
function groupBytesAt(trace, groups, instant) {
  const {born, died, bytes, rounding, shown, sumsAt} = trace, sums = new Float64Array(groups.list.length);
  if (sumsAt.has(instant)) return sumsAt.get(instant);
  for (let t = 0; t < trace.count && born[t] <= instant; t++) {
    if (died[t] <= instant) continue;
    sums[shown[t]] += bytes[t];
    sums[groups.rounding] += rounding[t];
  }
  if (sumsAt.size > 100) sumsAt.clear();
  sumsAt.set(instant, sums);
  return sums;
}

// The tensor at `bytes` above the bottom of its group's band; -1 if the band ends below.
function tensorInBand(trace, group, instant, bytes) {
  const {born, died, shown} = trace;
  for (let t = 0, top = 0; t < trace.count && born[t] <= instant; t++) {
    if (shown[t] === group && instant < died[t] && (top += trace.bytes[t]) > bytes) return t;
  }
  return -1;
}

// The largest tensors of the filter at an instant.
function largestAt(trace, groups, instant) {
  const living = [];
  forLiving(trace, instant, t => trace.shown[t] !== groups.unmatched && living.push(t));
  return living.sort((a, b) => trace.bytes[b] - trace.bytes[a] || a - b);
}

// How much the tensors of the filter take: at the peak, at their own peak, and how many there are.
function filterFigures(trace, groups) {
  const change = new Float64Array(trace.instants + 1), figures = {tensors: 0, atPeak: 0, peak: 0, instant: 0};
  for (let t = 0; t < trace.count; t++) {
    if (trace.shown[t] === groups.unmatched) continue;
    figures.tensors++;
    change[trace.born[t]] += trace.bytes[t];
    change[trace.died[t]] -= trace.bytes[t];
  }
  let bytes = 0;
  for (let i = 0; i < trace.instants; i++) {
    bytes += change[i];
    if (i === trace.about.peak.instant) figures.atPeak = bytes;
    if (bytes > figures.peak) [figures.peak, figures.instant] = [bytes, i];
  }
  return figures;
}
