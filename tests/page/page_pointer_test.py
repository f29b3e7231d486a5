#!/usr/bin/env python3
"""The report page in a real browser: the pointer, zooming, and the keys of the timeline."""

import pathlib
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from page_case import BrowserTest, COVERED  # noqa: E402
from page_sample import GIB  # noqa: E402


class PointerTest(BrowserTest):
    # ---- The pointer

    def test_names_the_tensor_under_the_pointer(self):
        trace = self.open("small")
        largest = sorted(trace.living(trace.peak), key=lambda t: -trace.sample.bytes[t])
        for tensor in largest[2:40:6]:
            born, died = trace.sample.born[tensor], trace.sample.died[tensor] or len(trace.allocated)
            self.hover_tensor(trace, tensor, (born + died) // 2)
            instant = self.legend()["instant"]
            self.hover_tensor(trace, tensor, instant)
            box = self.run_in("document.querySelector('#tooltip').innerText")
            self.assertIn(f"{trace.sample.bytes[tensor]:,} bytes", box)
            for name in trace.names(tensor):
                self.assertIn(name, box)
            self.assertIn(f"event {trace.sample.events[born]:,},", box)
            self.assertIn("lives to the end" if trace.sample.died[tensor] is None
                          else f"event {trace.sample.events[died]:,},", box)

    def test_the_box_does_not_cover_the_pointer(self):
        self.open("small")
        left, top, width, height = self.plot()
        for share in (0.1, 0.3, 0.5, 0.7, 0.95):
            for level in (0.4, 0.7, 0.9):
                x, y = left + width * share, top + height * level
                self.browser.move(x, y)
                x0, y0, wide, high = self.box("#tooltip")
                self.assertFalse(x0 <= x <= x0 + wide and y0 <= y <= y0 + high)
                self.assertTrue(x0 >= 0 and x0 + wide <= 1200 and y0 + high <= 900)

    def test_the_box_does_not_cover_the_tensor(self):
        trace = self.open("small")
        largest = sorted(trace.living(trace.peak), key=lambda t: -trace.sample.bytes[t])
        for tensor in largest[2:60:4]:
            died = trace.sample.died[tensor] or len(trace.allocated)
            self.hover_tensor(trace, tensor, (trace.sample.born[tensor] + died) // 2)
            self.assertLess(self.run_in(COVERED), 0.01)

    def test_a_click_keeps_the_box(self):
        trace = self.open("small")
        left, top, width, height = self.plot()
        self.browser.click(left + width * 0.5, top + height * 0.85)
        instant = self.legend()["instant"]
        self.browser.move(left + width * 0.8, top + height * 0.85)
        self.assertEqual(self.legend()["instant"], instant)
        self.assertFalse(self.run_in("document.querySelector('#tooltip').hidden"))
        self.assertEqual(self.run_in("Number(document.querySelector('.largest').dataset.instant)"), instant)
        self.assertEqual(self.bytes(".largest .sum span"), sum(trace.sample.bytes[t] for t in trace.living(instant)))
        self.browser.key("Escape")
        self.assertTrue(self.run_in("document.querySelector('#tooltip').hidden"))
        self.assertEqual(self.legend()["instant"], trace.peak)
        # Once the place of the last pin was taken for a second click on it.
        self.browser.click(left + width * 0.5, top + height * 0.85)
        self.assertEqual(self.legend()["instant"], instant)

    def test_is_drawn_at_no_width(self):
        """As in a folded cell of a notebook; the segments once were laid out for ever."""
        self.open("small")
        self.run_in("document.body.style.display = 'none', window.dispatchEvent(new Event('resize')), 1")
        self.run_in("new Promise(done => setTimeout(() => done(1), 300))")
        self.run_in("document.body.style.display = '', 1")
        self.assertGreater(self.run_in("document.querySelector('.segments canvas').clientWidth"), 100)

    def test_no_peak_is_lost_in_drawing(self):
        trace = self.open("large")
        x = self.pixel(trace.peak)
        near = []
        for shift in (-1, 0, 1):
            self.browser.move(x + shift, self.plot()[1] + 300)
            near.append(self.legend()["instant"])
        self.assertIn(trace.peak, near)

    # ---- Zoom

    def test_the_wheel_zooms_at_the_pointer(self):
        trace = self.open("small")
        left, top, width, height = self.plot()
        start, end = self.window()
        before = self.legend_at(left + width * 0.6, top + height * 0.8)
        self.browser.wheel(left + width * 0.6, top + height * 0.8, -1200)
        zoomed = self.window()
        self.assertLess(zoomed[1] - zoomed[0], (end - start) / 4)
        after = self.legend_at(left + width * 0.6, top + height * 0.8)
        self.assertLess(abs(after - before), len(trace.allocated) / 200)
        self.browser.click(left + width * 0.6, top + height * 0.8, count=2)
        self.assertEqual(self.window(), [start, end])

    def test_dragging_selects_a_range(self):
        self.open("small")
        left, top, width, height = self.plot()
        first = self.legend_at(left + width * 0.4, top + height * 0.8)
        last = self.legend_at(left + width * 0.6, top + height * 0.8)
        self.browser.drag(left + width * 0.4, top + height * 0.8, left + width * 0.6)
        start, end = self.window()
        events = self.pages.traces["small"].sample.events
        self.assertLess(abs(start - events[first]), 20)
        self.assertLess(abs(end - events[last]), 20)
        self.browser.drag(left + width * 0.5, top + height * 0.8, left + width * 0.4, modifiers=8)
        self.assertGreater(self.window()[0], start)
        self.assertAlmostEqual(self.window()[1] - self.window()[0], end - start)
        self.browser.key("0")
        self.assertLess(self.window()[0], start)

    def test_the_strip_below_moves_the_window(self):
        self.open("small")
        whole = self.window()
        box = self.box(".overview")
        self.browser.drag(box[0] + box[2] * 0.3, box[1] + 20, box[0] + box[2] * 0.5)
        start, end = self.window()
        self.assertLess(end - start, (whole[1] - whole[0]) / 3)
        self.assertGreater(float(self.run_in("document.querySelector('.overview .extent').getAttribute('width')")), 50)

    def test_all_instants_can_be_reached_by_zooming(self):
        trace = self.open("large")
        self.run_in("document.querySelector('.timeline').focus()")
        self.browser.key("p")
        for _ in range(40):
            self.browser.key("+")
        self.assertLess(self.window()[1] - self.window()[0], 20)
        for instant in range(trace.peak - 1, trace.peak + 2):
            self.browser.move(self.pixel(instant), self.plot()[1] + 300)
            self.assertEqual(self.legend()["instant"], instant)

    def test_the_axis_can_be_time(self):
        trace = self.open("small")
        self.browser.key("t")
        self.assertEqual(self.run_in("document.querySelector('#axis').value"), "time")
        first, last = trace.sample.times[0], trace.sample.times[-1]
        self.assertAlmostEqual(self.window()[1], (last[1] - first[1]) / 1e9, delta=0.02)
        self.assertRegex(self.text(".x.axis"), r"\d ms")
        self.browser.move(self.pixel(trace.peak), self.plot()[1] + 300)
        self.assertEqual(self.legend()["instant"], trace.peak)

    def test_outlines_the_large_tensors_when_zooming_ends(self):
        self.open("small")
        wait = "new Promise(done => setTimeout(() => headroomReport.ready.then(page => done(page.outlines())), 20))"
        until = time.monotonic() + 30
        while (count := self.run_in(wait)) == 0 and time.monotonic() < until:
            pass
        self.assertGreater(count, 20)

    # ---- Keys

    def test_the_cursor_goes_from_instant_to_instant(self):
        trace = self.open("small")
        self.run_in("document.querySelector('.timeline').focus()")
        self.browser.key("p")
        for shift in (1, 2):
            self.browser.key("ArrowRight")
            instant = trace.peak + shift
            self.assertEqual(self.legend()["instant"], instant)
            self.assertIn(f"At event {trace.sample.events[instant]:,},", self.text(".live"))
            self.assertIn(f"{trace.allocated[instant] / GIB:.2f} GiB allocated", self.text(".live"))

    def test_the_cursor_chooses_tensors(self):
        trace = self.open("small")
        self.run_in("document.querySelector('.timeline').focus()")
        self.browser.key("p")
        self.browser.key("ArrowUp")
        first = trace.living(trace.peak)[0]
        said = f"({trace.sample.bytes[first]:,} bytes): category parameter; module transformer.wte"
        self.assertIn(said, self.text(".live"))

    def test_help_lists_the_keys(self):
        self.open("small")
        self.browser.key("?")
        self.assertTrue(self.run_in("document.querySelector('#help').open"))
        self.browser.key("Escape")
        self.assertFalse(self.run_in("document.querySelector('#help').open"))


if __name__ == "__main__":
    unittest.main()
