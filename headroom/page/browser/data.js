// A trace, decoded from the page into typed arrays: one entry a tensor (in order of birth) or one an
// instant. Instant i is the state after its event; a tensor lives at the instants [born, died).

async function gunzip(base64) {
  const text = atob(base64.trim());
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < packed.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Varints up to 2^53, so the shifts are multiplications.
function decodeVarints(bytes) {
  let count = 0;
  for (let i = 0; i < bytes.length; i++) count += bytes[i] < 128;
  const numbers = new Float64Array(count);
  for (let i = 0, at = 0; i < count; i++) {
    let byte = bytes[at++], number = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = bytes[at++];
      number += (byte & 127) * scale;
    }
    numbers[i] = number;
  }
  return numbers;
}

function decodeColumns(bytes) {
  const view = new DataView(bytes.buffer), columns = [];
  for (let at = 0; at < bytes.length;) {
    const length = view.getUint32(at, true);
    columns.push(decodeVarints(bytes.subarray(at + 4, at + 4 + length)));
    at += 4 + length;
  }
  return columns;
}

function runningSum(numbers) {
  for (let i = 1; i < numbers.length; i++) numbers[i] += numbers[i - 1];
  return numbers;
}

const unzigzag = number => number % 2 ? -(number + 1) / 2 : number / 2;

// The value from each pair's instant on.
function decodeReserved(pairs, instants) {
  const reserved = new Float64Array(instants);
  let at = 0, value = 0;
  for (let i = 0; i < pairs.length; i += 2) {
    const next = at + pairs[i];
    reserved.fill(value, at, next);
    value += unzigzag(pairs[i + 1]);
    at = next;
  }
  return reserved.fill(value, at);
}

// Seconds since the first sample; linear between samples.
function decodeSeconds(pairs, instants) {
  if (pairs.length === 0) return null;
  const seconds = new Float64Array(instants);
  let at = pairs[0], time = 0;
  for (let i = 2; i < pairs.length; i += 2) {
    const slope = pairs[i + 1] / 1e9 / Math.max(1, pairs[i]);
    for (let k = 0; k < pairs[i]; k++) seconds[at + k] = time + k * slope;
    at += pairs[i];
    time += pairs[i + 1] / 1e9;
  }
  return seconds.fill(time, at);
}

function allocatedByInstant(trace) {
  const change = new Float64Array(trace.instants + 1);
  for (let t = 0; t < trace.count; t++) {
    const size = trace.bytes[t] + trace.rounding[t];
    change[trace.born[t]] += size;
    change[trace.died[t]] -= size;
  }
  return runningSum(change).subarray(0, trace.instants);
}

// The positions of all instants on an axis, and the end of the last.
function positions(values) {
  const ends = new Float64Array(values.length + 1), last = values.length - 1;
  ends.set(values);
  ends[last + 1] = values[last] + Math.max((values[last] - values[0]) / Math.max(1, last), 1e-9);
  return ends;
}

// The allocator's segments at the peak, with their blocks in order: [size, tensor]; tensor -1: free.
function decodeSegments(numbers, blocks) {
  const segments = [];
  let address = 0, at = 0;
  for (let i = 0; i < numbers.length; i += 6) {
    const [after, bytes, stream, pool, expandable, count] = numbers.subarray(i, i + 6), own = [];
    for (let k = 0; k < count; k++, at += 2) own.push([blocks[at], blocks[at + 1] - 1]);
    segments.push({address: address += after, bytes, stream, pool, expandable: expandable === 1, blocks: own});
  }
  return segments;
}

async function decodeTrace(about, base64) {
  const [born, life, bytes, rounding, what, event, reserved, time, segments, blocks] =
      decodeColumns(await gunzip(base64));
  const trace = {about, count: born.length, instants: about.instants, bytes, rounding};
  trace.born = Uint32Array.from(runningSum(born));
  trace.died = new Uint32Array(trace.count);  // a tensor that lives to the end dies after the last instant
  for (let t = 0; t < trace.count; t++) trace.died[t] = life[t] ? trace.born[t] + life[t] : trace.instants;
  trace.what = Uint32Array.from(what);
  trace.event = runningSum(event);
  trace.reserved = decodeReserved(reserved, trace.instants);
  trace.seconds = decodeSeconds(time, trace.instants);
  trace.allocated = allocatedByInstant(trace);
  trace.segments = decodeSegments(segments, blocks);
  trace.bands = knownBands(about);
  trace.axes = {events: positions(trace.event), time: trace.seconds && positions(trace.seconds)};
  return trace;
}

// The rows above the plot that tell something.
function knownBands({steps, phases, marks}) {
  const known = {steps: steps.some(pair => pair[1] > 0), phases: phases.some(pair => pair[1] !== "unknown"),
                 marks: marks.length > 0};
  return Object.keys(known).filter(kind => known[kind]);
}

// The value of the last pair at or before the instant; of [[instant, value], ...].
function pairAt(pairs, instant) {
  const index = d3.bisector(pair => pair[0]).right(pairs, instant) - 1;
  return index < 0 ? null : pairs[index][1];
}

// What is known of a tensor, as text; "" is unknown.
function tensorNames(trace, tensor) {
  const {names, categories, whats} = trace.about;
  const [category, module, operation, line] = whats[trace.what[tensor]];
  return {category: category ? categories[category] : "", module: names[module], operation: names[operation],
          line: names[line]};
}
