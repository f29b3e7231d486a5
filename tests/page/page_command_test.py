#!/usr/bin/env python3
"""Pages that the command writes, in a real browser.

    page_command_test.py HEADROOM [word...]"""

import json
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from page_case import BrowserTest, Pages  # noqa: E402
from page_sample import train  # noqa: E402


class CommandTest(BrowserTest):
    """Pages of `headroom trace`: what they show is what `headroom trace replay` computes."""

    headroom = None

    @classmethod
    def setUpClass(cls):
        if not cls.headroom:
            raise unittest.SkipTest("needs the path of headroom")
        super().setUpClass()
        for name, rows in (("a", 4), ("b", 6)):
            cls.write_events(pathlib.Path(cls.folder.name) / f"{name}.txt", train(rows=rows, steps=2))

    @staticmethod
    def write_events(path, sample):
        lines = {}
        for tensor, (born, died) in enumerate(zip(sample.born, sample.died)):
            lines[born] = f"a {tensor} {sample.bytes[tensor]}\n"
            lines[died] = f"f {tensor}\n"
        path.write_text("".join(lines[instant] for instant in range(len(sample.events))))

    def command(self, *words):
        done = subprocess.run([self.headroom, "trace", *words], cwd=self.folder.name, capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def look_at(self, *words):
        self.command(*words)
        self.assertTrue(self.browser.open(pathlib.Path(self.folder.name) / words[-1]), "the page ended with an error")

    def peak_of(self, trace, figure):
        return json.loads(self.command("replay", trace, "--json"))[figure]["peak"]

    def test_a_report_shows_the_replay(self):
        self.look_at("report", "a.txt", "--out", "report.html")
        rows = self.legend()["rows"]
        self.assertEqual(self.bytes(".figure.allocated b"), self.peak_of("a.txt", "allocated"))
        self.assertEqual(self.bytes(".figure.reserved b"), self.peak_of("a.txt", "reserved"))
        self.assertEqual(rows["allocated"][1] - rows["rounding"][1], self.peak_of("a.txt", "requested"))
        self.assertEqual(self.bytes(".segments .reserved"), rows["reserved"][1])
        self.assertEqual(self.bytes(".segments .allocated"), rows["allocated"][1])

    def test_the_parts_add_up_in_a_report(self):
        self.look_at("report", "a.txt", "--out", "report.html")
        living, sums = {}, []
        for line in (pathlib.Path(self.folder.name) / "a.txt").read_text().splitlines():
            kind, tensor, *size = line.split()
            living.update({tensor: int(size[0])}) if kind == "a" else living.pop(tensor)
            sums.append(sum(living.values()))
        left, top, width, height = self.plot()
        for share in (0.2, 0.5, 0.8):
            instant = self.legend_at(left + width * share, top + height * 0.8)
            rows = {name: here for name, (here, _) in self.legend()["rows"].items()}
            self.assertEqual(rows["allocated"] - rows["rounding"], sums[instant])
            parts = sum(size for name, size in rows.items() if name not in ("reserved", "allocated"))
            self.assertEqual(parts, rows["reserved"])

    def test_a_diff_shows_both_peaks(self):
        self.look_at("diff", "a.txt", "b.txt", "--out", "diff.html")
        peaks = [self.peak_of(f"{name}.txt", "allocated") for name in "ab"]
        self.assertEqual([self.legend(report)["rows"]["allocated"][1] for report in (0, 1)], peaks)
        self.assertEqual(self.bytes("#difference tfoot td"), peaks[1] - peaks[0])


if __name__ == "__main__":
    CommandTest.headroom = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
