// Groups of tensors, bottom of the stack first: by category, module, operation, line or size. The last
// two are always the tensors that the filter leaves out, and the rounding of all tensors. Memory that
// stays long lies below memory that comes and goes, so that the areas are calm.

const CATEGORY_LABELS = {parameter: "parameters", buffer: "buffers", optimizer: "optimizer", gradient: "gradients",
                         input: "inputs", activation: "activations", temporary: "temporaries",
                         workspace: "workspace", unknown: "unknown"};
// After Okabe and Ito, muted; neighbours differ in lightness too.
const CATEGORY_COLORS = {parameter: "#2b6ca8", buffer: "#c9d8e4", optimizer: "#8cc3e6", gradient: "#c8603a",
                         input: "#efe08a", activation: "#2a8f76", temporary: "#e9b04e", workspace: "#a65a87",
                         unknown: "#8f97a0"};
const COLORS = ["#2a8f76", "#e9b04e", "#2b6ca8", "#ecb5d0", "#c8603a", "#8cc3e6", "#8a4a78", "#d9cf7a", "#4a5d9e",
                "#a9d5c2", "#9c6b2f", "#d8b7a6"];
// From dark for the largest to light: sizes have an order.
const SIZE_COLORS = ["#3d2f6f", "#2f6690", "#2a9484", "#7fbf5f", "#dccb4a", "#efe6b4"];
const OTHERS = "#c6cbd1", ROUNDING = "#6d747c", UNMATCHED = "#d0d3d7";
const SIZE_CLASSES = [[GIB, "1 GiB or more"], [256 * MIB, "256 MiB to 1 GiB"], [64 * MIB, "64 to 256 MiB"],
                      [16 * MIB, "16 to 64 MiB"], [MIB, "1 to 16 MiB"], [0, "less than 1 MiB"]];
const MOST_GROUPS = 12;

const moduleAt = (name, depth) => depth ? name.split(".").slice(0, depth).join(".") : name;
// Modules that differ in a number only have one key: "h.*.attn".
const layerKind = name => name.replace(/(^|\.)\d+(?=\.|$)/g, "$1*");

// The key of each tensor, as an index into `keys`.
function keysOf(trace, by, depth) {
  const {whats, names, categories} = trace.about, tensors = new Uint32Array(trace.count);
  if (by === "size") {
    for (let t = 0; t < trace.count; t++) tensors[t] = SIZE_CLASSES.findIndex(([least]) => trace.bytes[t] >= least);
    return {keys: SIZE_CLASSES.map(([, label]) => label), tensors};
  }
  const field = ["category", "module", "operation", "line"].indexOf(by), keys = [], indexOf = new Map();
  const ofWhat = whats.map(what => {
    const key = by === "category" ? categories[what[0]]
              : by === "module" ? moduleAt(names[what[1]], depth)
              : by === "kind" ? moduleAt(layerKind(names[what[1]]), depth) : names[what[field]];
    if (!indexOf.has(key)) indexOf.set(key, keys.push(key) - 1);
    return indexOf.get(key);
  });
  for (let t = 0; t < trace.count; t++) tensors[t] = ofWhat[trace.what[t]];
  return {keys, tensors};
}

// By key of the tensors that occur: {peak, all, stay}, which are the bytes at the peak, those of all
// tensors, and these times the share of the trace in which they live.
function sumsByKey(traces, by, depth) {
  const sums = new Map();
  for (const trace of traces) {
    const {keys, tensors} = keysOf(trace, by, depth), peak = trace.about.peak.instant;
    const own = keys.map(() => ({peak: 0, all: 0, stay: 0}));
    for (let t = 0; t < trace.count; t++) {
      const sum = own[tensors[t]], bytes = trace.bytes[t];
      sum.all += bytes;
      sum.stay += bytes * (trace.died[t] - trace.born[t]) / trace.instants;
      if (livesAt(trace, t, peak)) sum.peak += bytes;
    }
    keys.forEach((key, k) => own[k].all && sums.set(key, addSums(sums.get(key), own[k])));
  }
  return sums;
}

const addSums = (a, b) => a ? {peak: a.peak + b.peak, all: a.all + b.all, stay: a.stay + b.stay} : b;

function fixedGroups(by) {
  if (by === "size") return SIZE_CLASSES.map(([, key], i) => ({key, label: key, color: SIZE_COLORS[i]}));
  return Object.keys(CATEGORY_LABELS).map(key => ({key, label: CATEGORY_LABELS[key], color: CATEGORY_COLORS[key]}));
}

// The keys with most bytes at the peak, and one group for all others.
function largestGroups(sums) {
  const keys = [...sums.keys()].sort((a, b) => sums.get(b).peak - sums.get(a).peak || (a < b ? -1 : 1));
  const named = keys.slice(0, MOST_GROUPS), rest = keys.slice(MOST_GROUPS);
  const list = named.map((key, i) => ({key, label: key || "unknown", color: key ? COLORS[i] : CATEGORY_COLORS.unknown,
                                       sum: sums.get(key)}));
  if (rest.length) {
    const sum = rest.map(key => sums.get(key)).reduce(addSums);
    list.push({key: null, label: `${rest.length} others`, color: OTHERS, sum});
  }
  return list.sort((a, b) => b.sum.stay / b.sum.all - a.sum.stay / a.sum.all || b.sum.peak - a.sum.peak);
}

function makeGroups(traces, by, depth) {
  const sums = sumsByKey(traces, by, depth);
  const fixed = by === "category" || by === "size";
  const list = fixed ? fixedGroups(by).filter(({key}) => sums.has(key)) : largestGroups(sums);
  list.push({label: "not in the filter", color: UNMATCHED}, {label: "rounding", color: ROUNDING});
  return {by, depth, list, unmatched: list.length - 2, rounding: list.length - 1};
}

function assignGroups(trace, groups) {
  const {keys, tensors} = keysOf(trace, groups.by, groups.depth);
  const others = groups.list.findIndex(group => group.key === null);
  const groupOf = keys.map(key => {
    const own = groups.list.findIndex(group => group.key === key);
    return own < 0 ? Math.max(0, others) : own;
  });
  trace.group = new Uint8Array(trace.count);
  for (let t = 0; t < trace.count; t++) trace.group[t] = groupOf[tensors[t]];
}

// `shown` is the group in which a tensor is drawn. Each word has to occur in one of its names.
function applyFilter(trace, groups, words, only) {
  const {whats, names, categories} = trace.about;
  const matches = whats.map(([category, ...rest]) => {
    const text = [categories[category], ...rest.map(name => names[name])].join("\n").toLowerCase();
    return words.every(word => text.includes(word));
  });
  trace.shown = new Uint8Array(trace.count);
  trace.sumsAt = new Map();  // groupBytesAt
  for (let t = 0; t < trace.count; t++) {
    const kept = matches[trace.what[t]] && (only < 0 || trace.group[t] === only);
    trace.shown[t] = kept ? trace.group[t] : groups.unmatched;
  }
}

// The first depth that separates enough modules; 0 means the whole path.
function deepestModule(traces) {
  return d3.max(traces, trace => d3.max(trace.about.whats, what => trace.about.names[what[1]].split(".").length)) || 1;
}
function usefulDepth(traces) {
  const deepest = deepestModule(traces);
  for (let depth = 1; depth < deepest; depth++) {
    if (sumsByKey(traces, "module", depth).size >= 6) return depth;
  }
  return 0;
}

// {by, depth} to start with. One grey area tells nothing: tensors without names are grouped by size.
function usefulGrouping(traces) {
  const by = traces[0].about.group_by, depth = usefulDepth(traces), sums = sumsByKey(traces, by, depth);
  if ([...sums.keys()].every(key => key === "" || key === "unknown")) return {by: "size", depth};
  if (by === "module" && sumsByKey(traces, "kind", 0).size >= 4) return {by: "kind", depth: 0};
  return {by, depth};
}
