"""The frame of the tests of the report page: invented traces (page_sample.py), pages of them, a browser, and
what a reader sees there. Each expected figure is computed from the tensors as they were invented, not from the
page's columns. Without Chromium or d3 the tests are skipped."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import chromium  # noqa: E402
import page_sample  # noqa: E402
from page_sample import GIB, MIB, about_of, columns_of, data_of, diff_of, lone, page_of, train  # noqa: E402

PLURAL = {"parameter": "parameters", "buffer": "buffers", "optimizer": "optimizer", "gradient": "gradients",
          "input": "inputs", "activation": "activations", "temporary": "temporaries", "workspace": "workspace",
          "unknown": "unknown"}
LEGEND = """(table => ({instant: Number(table.dataset.instant), rows: Object.fromEntries([...table.tBodies[0].rows]
  .filter(row => !row.hidden).map(row => [row.querySelector('button')?.title || row.cells[0].textContent,
    ['.here', '.peak'].map(cell => Number(row.querySelector(cell).dataset.bytes))]))}))
  (document.querySelectorAll('.legend')[%d])"""
# Colours, not greys, that cover more than 200 pixels of the timeline.
COLOURS = """(() => { const canvas = document.querySelector('.areas'), seen = {};
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < data.length; i += 4) {
    const rgb = [data[i], data[i + 1], data[i + 2]];
    if (data[i + 3] === 255 && Math.max(...rgb) - Math.min(...rgb) >= 40) seen[rgb] = (seen[rgb] || 0) + 1;
  }
  return Object.values(seen).filter(count => count > 200).length; })()"""
# The share of the box that lies above the highlighted tensor.
COVERED = """(() => { const canvas = document.querySelector('.over'), own = canvas.getBoundingClientRect();
  const box = document.querySelector('#tooltip').getBoundingClientRect();
  const copy = new OffscreenCanvas(box.width, box.height).getContext('2d', {willReadFrequently: true});
  copy.drawImage(canvas, own.left - box.left, own.top - box.top);
  const {data} = copy.getImageData(0, 0, box.width, box.height);
  let covered = 0;
  for (let i = 3; i < data.length; i += 4) covered += data[i] > 0;
  return covered / (data.length / 4); })()"""
SLOWEST_HOVER = """(() => { const over = document.querySelector('.over'), box = over.getBoundingClientRect();
  const times = [];
  for (let i = 1; i < 20; i++) {
    const began = performance.now(), clientX = box.left + box.width * (0.1 + i * 0.04);
    over.dispatchEvent(new PointerEvent('pointermove', {clientX, clientY: box.top + box.height * 0.75}));
    times.push(performance.now() - began);
  }
  return Math.max(...times); })()"""
TEXT = "document.querySelector('%s').textContent"


class Trace:
    """What a sample says, straight from its tensors."""

    def __init__(self, sample):
        self.sample = sample
        self.allocated = page_sample.allocated_by_instant(sample)
        self.reserved = page_sample.reserved_by_instant(sample)
        self.peak = max(range(len(self.allocated)), key=self.allocated.__getitem__)

    def living(self, instant):
        s = self.sample
        return [t for t, born in enumerate(s.born) if born <= instant and (s.died[t] is None or instant < s.died[t])]

    def names(self, tensor):
        category, *rest = self.sample.whats[self.sample.what[tensor]]
        return (page_sample.CATEGORIES[category], *(self.sample.names[name] for name in rest))

    def sums(self, instant, key, tensors=None):
        sums = {}
        for tensor in self.living(instant) if tensors is None else tensors:
            sums[key(tensor)] = sums.get(key(tensor), 0) + self.sample.bytes[tensor]
        return sums

    def by_category(self, instant):
        sums = self.sums(instant, lambda tensor: PLURAL[self.names(tensor)[0]])
        sums["rounding"] = sum(self.sample.rounding[tensor] for tensor in self.living(instant))
        return sums

    def matching(self, *words):
        texts = ["\n".join(self.names(t)).lower() for t in range(len(self.sample.born))]
        return [t for t, text in enumerate(texts) if all(word in text for word in words)]

    def highest(self, tensors):
        changes = {}
        for tensor in tensors:
            born, died, size = self.sample.born[tensor], self.sample.died[tensor], self.sample.bytes[tensor]
            changes[born] = changes.get(born, 0) + size
            if died is not None:
                changes[died] = changes.get(died, 0) - size
        total = most = 0
        for instant in sorted(changes):
            total += changes[instant]
            most = max(most, total)
        return most


class Pages:
    """The pages that several tests look at, each made when it is first asked for."""

    def __init__(self, folder):
        self.folder, self.made, self.traces = pathlib.Path(folder), {}, {}

    def write(self, name, title, data):
        path = self.folder / f"{name}.html"
        path.write_text(page_of(title, data))
        self.made[name] = path
        return path

    def path(self, name):
        return self.made.get(name) or getattr(self, name)()

    def one(self, name, sample, **about):
        self.traces[name] = Trace(sample)
        return self.write(name, name, data_of(about_of(sample, f"A step of <{name}>", **about), columns_of(sample)))

    def small(self):
        sample = train()
        sample.ooms = [{"instant": 2000, "asked_bytes": 2 * GIB, "free_bytes": GIB, "recorded": False}]
        return self.one("small", sample, capacity=8 * GIB)

    def snapshot(self):
        return self.one("snapshot", lone(train(steps=2)))

    def nameless(self):
        sample = train(steps=2)
        sample.whats = [(0, 0, 0, 0) for _ in sample.whats]
        return self.one("nameless", sample)

    def large(self):
        return self.one("large", train(layers=48, width=1600, rows=8, steps=42, extra=40), capacity=80 * GIB)

    def diff(self):
        self.traces["a"], self.traces["b"] = Trace(train()), Trace(train(rows=6, seed=2))
        samples = [self.traces[name].sample for name in "ab"]
        abouts = [about_of(sample, f"batch {rows}") for sample, rows in zip(samples, (4, 6))]
        sums = [self.traces[name].by_category(self.traces[name].peak) for name in "ab"]
        parts = [(2, "backward", "", part, sums[0].get(part, 0), sums[1].get(part, 0)) for part in sums[0]]
        parts += [(2, "backward", f"h.{i}", "activation", MIB + i, MIB + i) for i in range(30)]
        data = "".join(data_of(about, columns_of(sample)) for about, sample in zip(abouts, samples))
        return self.write("diff", "A and B", data + diff_of(*abouts, parts, ["B has more rows."]))


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not chromium.program() or not page_sample.D3.exists():
            raise unittest.SkipTest("needs the Debian packages chromium and libjs-d3")
        cls.folder = tempfile.TemporaryDirectory()
        cls.pages, cls.browser = Pages(cls.folder.name), chromium.Browser()

    @classmethod
    def tearDownClass(cls):
        if hasattr(cls, "browser"):
            cls.browser.__exit__()
            cls.folder.cleanup()

    def open(self, name, **size):
        self.assertTrue(self.browser.open(self.pages.path(name), **size), "the page ended with an error")
        return self.pages.traces.get(name)

    def tearDown(self):
        self.assertEqual(self.browser.complaints(), [])

    def run_in(self, expression):
        return self.browser.run(expression)

    def text(self, selector):
        return self.run_in(TEXT % selector)

    def bytes(self, selector):
        return int(self.run_in(f"document.querySelector('{selector}').dataset.bytes"))

    def legend(self, report=0):
        return self.run_in(LEGEND % report)

    def legend_at(self, x, y):
        self.browser.move(x, y)
        return self.legend()["instant"]

    def box(self, selector, number=0):
        """Left, top, width, height."""
        return self.run_in("(box => [box.left, box.top, box.width, box.height])"
                           f"(document.querySelectorAll('{selector}')[{number}].getBoundingClientRect())")

    def plot(self, report=0):
        return self.box(".over", report)

    def set_value(self, selector, value, event):
        self.run_in(f"(field => {{ field.value = '{value}'; field.dispatchEvent(new Event('{event}')); }})"
                    f"(document.querySelector('{selector}'))")

    def window(self, report=0):
        return self.run_in(f"headroomReport.ready.then(page => page.window({report}))")

    def pixel(self, instant):
        return self.plot()[0] + self.run_in(f"headroomReport.ready.then(page => page.pixelOf({instant}))")

    def height_of(self, size):
        """Where so many bytes lie, from the ticks of the axis as a reader would measure it."""
        ticks = self.run_in("[...document.querySelectorAll('.y .tick')].map(tick => [tick.textContent, "
                            "tick.querySelector('line').getBoundingClientRect().top])")
        zero = next(y for text, y in ticks if text == "0 B")
        text, y = ticks[-1]
        units = {"GiB": GIB, "MiB": MIB}
        return zero + (y - zero) * size / (float(text.split()[0]) * units[text.split()[1]])

    def hover_tensor(self, trace, tensor, instant):
        order = list(PLURAL)
        group = trace.names(tensor)[0]
        below = sum(trace.sample.bytes[t] for t in trace.living(instant)
                    if (order.index(trace.names(t)[0]), t) < (order.index(group), tensor))
        self.browser.move(self.pixel(instant), self.height_of(below + trace.sample.bytes[tensor] / 2))
