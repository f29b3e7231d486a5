// Where single tensors lie inside their group's band. Within a group tensors are stacked in order of
// birth, so a tensor lies as high as the living tensors of its group that are older.

const MOST_OUTLINES = 400;

// Sums of a prefix that can change: a Fenwick tree.
class PrefixSums {
  constructor(length) { this.sums = new Float64Array(length + 1); }
  add(position, value) {
    for (let i = position + 1; i < this.sums.length; i += i & -i) this.sums[i] += value;
  }
  before(position) {
    let sum = 0;
    for (let i = position; i > 0; i -= i & -i) sum += this.sums[i];
    return sum;
  }
}

// The largest tensors of the filter of at least `height` bytes that cover at least `width` pixels.
function outlinedTensors(trace, groups, samples, index, height, width) {
  const chosen = [];
  for (let t = 0; t < trace.count; t++) {
    const from = index[trace.born[t]], to = index[trace.died[t]];
    if (from === samples.count) break;
    if (trace.bytes[t] < height || from === to || trace.shown[t] === groups.unmatched) continue;
    if (samples.right[to - 1] - samples.left[from] >= width) chosen.push(t);
  }
  return chosen.sort((a, b) => trace.bytes[b] - trace.bytes[a]).slice(0, MOST_OUTLINES).sort((a, b) => a - b);
}

// The tensors that a sample shows, and the position of each by (group, birth).
function drawnTensors(trace, samples, index) {
  const kept = [], starts = new Uint32Array(257);
  for (let t = 0; t < trace.count && index[trace.born[t]] < samples.count; t++) {
    if (index[trace.born[t]] === index[trace.died[t]]) continue;
    kept.push(t);
    starts[trace.shown[t] + 1]++;
  }
  for (let g = 1; g < starts.length; g++) starts[g] += starts[g - 1];
  const next = starts.slice(), position = new Map(kept.map(t => [t, next[trace.shown[t]]++]));
  return {kept, starts, position};
}

// For each tensor of `outlined`: its offset in the band at each sample that shows it, in bytes.
function offsetsOf(trace, samples, index, outlined) {
  const {kept, starts, position} = drawnTensors(trace, samples, index);
  const deaths = kept.slice().sort((a, b) => trace.died[a] - trace.died[b]);
  const sums = new PrefixSums(kept.length), offsets = outlined.map(() => []);
  let births = 0, dead = 0, started = 0, living = [];
  for (let s = 0; s < samples.count; s++) {
    for (; births < kept.length && index[trace.born[kept[births]]] <= s; births++) {
      sums.add(position.get(kept[births]), trace.bytes[kept[births]]);
    }
    for (; dead < kept.length && index[trace.died[deaths[dead]]] <= s; dead++) {
      sums.add(position.get(deaths[dead]), -trace.bytes[deaths[dead]]);
    }
    for (; started < outlined.length && index[trace.born[outlined[started]]] <= s; started++) living.push(started);
    living = living.filter(o => index[trace.died[outlined[o]]] > s);
    for (const o of living) {
      const tensor = outlined[o];
      offsets[o].push(sums.before(position.get(tensor)) - sums.before(starts[trace.shown[tensor]]));
    }
  }
  return offsets;
}

// The same for one tensor, without a tree: it is asked for at each move of the mouse.
function offsetsOfOne(trace, index, tensor) {
  const from = index[trace.born[tensor]], to = index[trace.died[tensor]];
  const change = new Float64Array(to - from + 1), group = trace.shown[tensor];
  for (let t = 0; t < tensor; t++) {
    const end = Math.min(to, index[trace.died[t]]);  // it was born before this tensor
    if (trace.shown[t] !== group || end <= from) continue;
    change[0] += trace.bytes[t];
    change[end - from] -= trace.bytes[t];
  }
  return runningSum(change);
}
