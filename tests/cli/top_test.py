#!/usr/bin/env python3
"""`headroom top` and `headroom --line` in a real terminal (tmux): every key, on simulated machines and on
a driver that hangs.

    top_test.py /path/to/headroom /path/to/libfake_nvml.so
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import terminal_test

HEADROOM, FAKE_NVML = "", ""
GIB, MIB = 1 << 30, 1 << 20


def start_ticks(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[19])


def orphan():
    """A process whose parent is gone, as a loader that was left behind."""
    return int(subprocess.run(["sh", "-c", "sleep 10000 > /dev/null 2>&1 & echo $!"], check=True,
                              text=True, capture_output=True).stdout)


class Lab(unittest.TestCase):
    """A folder, and forty processes of this test that hold nothing but numbers."""

    @classmethod
    def setUpClass(cls):
        cls.children = [subprocess.Popen(["sleep", str(10001 + i)]) for i in range(40)]

    @classmethod
    def tearDownClass(cls):
        for child in cls.children:
            child.kill()
            child.wait()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="headroom-test-")
        self.path = self.folder.name
        self.terminal = None

    def tearDown(self):
        self.close()
        self.folder.cleanup()

    def fill_box(self, cards, pids=None):
        """The first process has 100 MiB, the next 200, ...; the first on GPU 0, the next on 1, ..."""
        pids = pids or [child.pid for child in self.children]
        shares = [{"pid": pid, "start_ticks": start_ticks(pid), "card": i % cards,
                   "used_bytes": (i + 1) * 100 * MIB} for i, pid in enumerate(pids)]
        os.makedirs(os.path.join(self.path, "state", "boxes"), exist_ok=True)
        box = os.path.join(self.path, "state", "boxes", "lab.json")
        with open(box + ".new", "w") as file:
            json.dump({"cards": [{"total_bytes": 96 * GIB}] * cards, "shares": shares}, file)
        os.rename(box + ".new", box)

    def open(self, width=80, height=24, **environment):
        """A terminal of its own, after that of before."""
        self.close()
        folder = tempfile.mkdtemp(dir=self.path)
        places = {"HEADROOM_STATE_DIR": os.path.join(self.path, "state")}
        self.terminal = terminal_test.Terminal(folder, width, height, **{**places, **environment})

    def close(self):
        if self.terminal:
            self.terminal.close()
        self.terminal = None

    def driver(self, state):
        """In the place of the driver's library; again: a change."""
        file = os.path.join(self.path, "driver.json")
        with open(file + ".new", "w") as out:
            json.dump(state, out)
        os.rename(file + ".new", file)
        return {"HEADROOM_NVML": FAKE_NVML, "HEADROOM_FAKE_NVML": file}

    def start(self, arguments):
        self.terminal.type(f"clear; {HEADROOM} top {arguments}; echo exit-$?; stty -a")
        return self.terminal.until(lambda lines: any("q quit" in line for line in lines))

    def press(self, *keys):
        for key in keys:
            self.terminal.press(key)

    def sees(self, *texts):
        return self.terminal.until(lambda lines: all(any(t in l for l in lines) for t in texts))

    def sees_not(self, text):
        return self.terminal.until(lambda lines: not any(text in line for line in lines))

    def ends(self, code):
        """And the terminal is as it was: it shows what is typed, line by line."""
        self.sees(f"exit-{code}", " icanon", " echo ")

    def selected(self):
        """The row in reverse, without the line of the keys."""
        lines = self.terminal.tmux("capture-pane", "-p", "-e").split("\n")
        rows = [re.sub(r"\033\[[0-9;]*m", "", line) for line in lines
                if re.search(r"\033\[([0-9]+;)*7m", line)]
        return [row for row in rows if "q quit" not in row]

    def selects(self, text):
        self.terminal.until(lambda _: any(text in row for row in self.selected()))


class Keys(Lab):
    def test_every_key_on_one_card(self):
        self.every_key(1)

    def test_every_key_on_eight_cards(self):
        self.every_key(8)

    def test_every_key_on_sixteen_cards(self):
        self.every_key(16)

    def every_key(self, cards):
        self.fill_box(cards)
        self.open()
        self.start(f"--gpus sim:{cards}x96GiB@lab")
        self.sees("sleep 10040", "/40")
        for key, order in (("g", "GPU"), ("u", "user"), ("a", "age"), ("p", "PID"), ("m", "memory")):
            self.press(key)
            self.sees(f"s sort: {order}  ")
        self.press("r")
        self.sees("s sort: memory up", "sleep 10001", " 100M ")
        self.press("r")
        for order in ("GPU", "user", "age", "PID", "memory"):
            self.press("s")
            self.sees(f"s sort: {order}  ")
        self.moves()
        self.pages()
        self.filters()
        if cards == 16:
            self.among_the_cards()
        self.press("C-l")
        self.sees("sleep 10040")
        self.press("q")
        self.ends(0)

    def moves(self):
        self.selects("sleep 10040")
        for key, row in (("Down", 10039), ("j", 10038), ("k", 10039), ("Up", 10040), ("NPage", 10030),
                         ("PPage", 10040), ("End", 10001), ("Home", 10040)):
            self.press(key)
            self.selects(f"sleep {row}")

    def pages(self):
        for key in ("h", "?"):
            self.press(key)
            self.sees("headroom top: keys", "Esc back")
            self.press("q")
            self.sees("sleep 10040")
        self.press("Enter")
        self.sees(f"PID {self.children[-1].pid}", "command  sleep 10040", "class    running", "why  ")
        self.press("Escape")
        self.sees("sleep 10039")

    def filters(self):
        self.press("/")
        self.sees("filter:", "type words")
        for letter in "SLEEP":
            self.press(letter)
        self.press("Space", "1", "0", "0", "0", "7", "x", "BSpace")
        self.sees("filter: SLEEP 10007")
        self.sees_not("sleep 10040")
        self.press("Enter")
        self.sees('Esc clears "SLEEP 10007"', "sleep 10007")
        self.press("Escape")
        self.sees("sleep 10040")

    def among_the_cards(self):
        self.sees("GPU 1-9/16")
        self.press("Tab", "End")
        self.selects(" 15 GPU")
        self.sees("GPU 8-16/16")
        self.press("Home", "Tab")
        self.selects("sleep 10040")


class Ending(Lab):
    def test_a_process_of_a_running_job_is_not_ended(self):
        self.fill_box(1)
        self.open(width=120)
        self.start("--gpus sim:1x96GiB@lab")
        self.press("e")
        self.sees(f"not ending PID {self.children[-1].pid}: its parent job is alive")
        self.press("q")
        self.ends(0)

    def test_ends_what_is_left_over_after_a_yes(self):
        pids = [orphan(), orphan()]
        try:
            self.fill_box(1, pids)
            self.open(width=120)
            self.start("--gpus sim:1x96GiB@lab")
            self.selects(str(pids[1]))
            self.press("e")
            self.sees(f"End PID {pids[1]} (")
            self.press("n", "o", "Enter")
            self.sees(f"PID {pids[1]} is left alone")
            self.press("e")
            self.sees(f"End PID {pids[1]} (")
            self.press("y", "e", "s", "Enter")
            self.sees(f"watching PID {pids[1]} for progress")
            self.sees(f"ended PID {pids[1]}")
            self.terminal.until(lambda lines: not any(f" {pids[1]} " in l for l in lines[3:20]))
            self.assertTrue(os.path.exists(f"/proc/{pids[0]}"), "the other one lives")
            self.press("q")
            self.ends(0)
        finally:
            for pid in pids:
                if os.path.exists(f"/proc/{pid}"):
                    os.kill(pid, signal.SIGKILL)

    def test_a_process_that_ends_disappears(self):
        last = subprocess.Popen(["sleep", "20000"])
        self.fill_box(1, [self.children[0].pid, last.pid])
        self.open()
        self.start("--gpus sim:1x96GiB@lab")
        self.sees("sleep 20000")
        last.kill()
        last.wait()
        self.sees_not("sleep 20000")
        self.sees("sleep 10001")
        self.press("q")
        self.ends(0)


class Screens(Lab):
    def widest(self):
        return max(len(line.rstrip()) for line in self.terminal.screen())

    def resize(self, width, height):
        self.terminal.tmux("resize-window", "-x", str(width), "-y", str(height))

    def draws_title(self, width):
        """The title ends with the clock; where there is no room for it, with dots."""
        end = re.compile(r" \d\d:\d\d:\d\d$" if width > 8 else "…$")
        self.terminal.until(lambda lines: len(lines[0]) == width and end.search(lines[0])
                            and not lines[0].startswith(("h", "P")))

    def test_follows_the_size_of_the_window(self):
        self.fill_box(8)
        self.open(120, 40)
        self.start("--gpus sim:8x96GiB@lab")
        clock = re.compile(r" \d\d:\d\d:\d\d$")
        for width, height in ((60, 20), (200, 50), (80, 24), (100, 30)):
            self.resize(width, height)
            screen = self.terminal.until(
                lambda lines: len(lines[0]) == width and clock.search(lines[0])
                and len(lines) == height and "q quit" in lines[-1])
            self.assertLessEqual(max(map(len, screen)), width)
            self.assertIn("GPU ", screen[1])
        self.press("q")
        self.ends(0)

    def test_a_tiny_window_is_no_crash(self):
        self.fill_box(16)
        self.open(120, 40)
        self.start("--gpus sim:16x96GiB@lab")
        for width, height in ((20, 5), (10, 2), (8, 3), (5, 1), (2, 1), (80, 24)):
            self.resize(width, height)
            self.draws_title(width)
            # "headroom top: keys"; "PID 4242", or on less than three lines a message in its place
            for key, page in (("h", ("h",)), ("Enter", ("P", ""))):
                self.press("Down", key)
                self.terminal.until(lambda lines: lines[0][:1] in page)
                self.press("Escape")
                self.draws_title(width)
        self.press("Home")
        self.sees("sleep 10040", "q quit")
        self.press("q")
        self.ends(0)

    def test_is_suspended_and_resumed(self):
        self.fill_box(1)
        self.open()
        self.terminal.type(f"clear; {HEADROOM} top --gpus sim:1x96GiB@lab")
        self.sees("q quit", "sleep 10040")
        self.press("C-z")
        self.sees("Stopped")
        self.terminal.type("clear; stty -a; echo typed")
        self.sees(" icanon", " echo ", "typed")
        self.terminal.tmux("resize-window", "-x", "100", "-y", "24")
        self.terminal.type("fg; echo exit-$?; stty -a")
        screen = self.sees("q quit", "sleep 10040")
        self.assertEqual(len(screen[0]), 100)
        self.press("q")
        self.ends(0)

    def test_signals_give_the_terminal_back(self):
        self.fill_box(1)
        for name, code in (("INT", 130), ("TERM", 143), ("QUIT", 131)):
            self.open()
            self.start("--gpus sim:1x96GiB@lab")
            if name == "INT":
                self.press("C-c")
            else:
                shell = self.terminal.tmux("display", "-p", "#{pane_pid}").strip()
                subprocess.run(["pkill", f"-{name}", "-P", shell, "-x", "headroom"], check=True)
            self.ends(code)

    def test_a_failure_gives_the_terminal_back(self):
        """A driver that answers late has no such card: told when the screen is already drawn."""
        hanging = {"cards": [{}], "faults": [{"function": "nvmlInit*", "do": "hang"}]}
        self.open(**self.driver(hanging))
        self.terminal.type(f"clear; {HEADROOM} top --gpus 7; echo exit-$?; stty -a")
        self.sees("has not answered for", "q quit")
        self.driver({"cards": [{}]})
        self.ends(64)
        self.assertIn("7", " ".join(self.terminal.screen()))

    def test_other_terminals_show_the_same(self):
        self.fill_box(1)
        for term in ("xterm-256color", "screen-256color", "linux", "vt100"):
            self.open()
            self.terminal.type(f"TERM={term}")
            screen = self.start("--gpus sim:1x96GiB@lab")
            self.sees("sleep 10040", "used/total")
            if term == "linux":
                self.assertTrue("\n".join(screen).isascii(), "its font lacks blocks")
            self.press("Down")
            self.selects("sleep 10039")
            self.press("q")
            self.ends(0)

    def test_without_colours_and_without_utf8(self):
        self.fill_box(1)
        self.open(NO_COLOR="1", LC_ALL="C")
        screen = self.start("--gpus sim:1x96GiB@lab")
        self.assertTrue("\n".join(screen).isascii())
        codes = re.findall(r"\033\[([0-9;]*)m", self.terminal.tmux("capture-pane", "-p", "-e"))
        self.assertFalse([c for c in codes if re.search(r"(^|;)(3[0-7]|4[0-7]|38|48)(;|$)", c)], codes)
        self.press("q")
        self.ends(0)

    def test_colours_are_there_otherwise(self):
        self.fill_box(1)
        self.open()
        self.start("--gpus sim:1x96GiB@lab")
        self.assertRegex(self.terminal.tmux("capture-pane", "-p", "-e"), r"\033\[[0-9;]*3[0-7]")
        self.press("q")
        self.ends(0)

    def test_a_dumb_and_an_unknown_terminal(self):
        self.fill_box(1)
        self.open(120, 60)
        self.terminal.type(f"clear; TERM=dumb {HEADROOM} top --gpus sim:1x96GiB@lab; echo exit-$?")
        self.sees("exit-0", "sleep 10040")
        self.terminal.type(f"clear; TERM=nonsense {HEADROOM} top --gpus sim:1x96GiB@lab; echo exit-$?")
        self.sees("exit-69", "nonsense")


class HangingDriver(Lab):
    def cards(self, *faults):
        return {"cards": [{"utilization": 35}, {"utilization": 70}], "faults": list(faults)}

    def test_a_card_that_hangs_stops_neither_keys_nor_the_others(self):
        self.open(**self.driver(self.cards()))
        self.start("")
        self.sees("35%", "70%")
        self.driver(self.cards({"function": "nvmlDeviceGetMemoryInfo*", "card": 1, "do": "hang"}))
        self.sees("35%", "stale ")
        self.press("h")
        self.sees("headroom top: keys")
        self.press("Escape", "p")
        self.sees("s sort: PID", "stale ")
        self.driver(self.cards())
        self.sees("35%", "70%")
        self.sees_not("stale ")
        self.press("q")
        self.ends(0)

    def test_a_driver_that_never_answers(self):
        state = self.cards({"function": "nvmlInit*", "do": "hang"})
        self.open(**self.driver(state))
        self.start("")
        self.sees("has not answered for")
        self.press("h")
        self.sees("headroom top: keys")
        self.press("q")
        self.sees("q quit")
        self.press("q")
        self.ends(0)

    def test_without_a_driver_it_says_why(self):
        self.open()
        self.start("")
        self.sees("no-driver.so")
        self.press("q")
        self.ends(0)


class AsText(Lab):
    def run_headroom(self, *arguments, **environment):
        variables = {**os.environ, "HEADROOM_STATE_DIR": os.path.join(self.path, "state"),
                     "HEADROOM_LEASE_DIR": os.path.join(self.path, "leases"), "TERM": "xterm-256color",
                     "HEADROOM_NVML": os.path.join(self.path, "no-driver.so"), "LC_ALL": "C.UTF-8",
                     **environment}
        return subprocess.run([HEADROOM, *arguments], env=variables, text=True, capture_output=True,
                              timeout=60)

    def test_a_pipe_gets_text_with_everything(self):
        self.fill_box(8)
        for arguments in (("top",), ("top", "--once")):
            done = self.run_headroom(*arguments, "--gpus", "sim:8x96GiB@lab")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertNotIn("\033", done.stdout)
            self.assertNotIn("q quit", done.stdout)
            self.assertEqual(done.stdout.count("sleep 100"), 40)

    def test_wrong_options_are_refused(self):
        self.assertEqual(self.run_headroom("top", "--interval", "1ms").returncode, 64)
        self.assertEqual(self.run_headroom("top", "--gpus", "cpu").returncode, 64)
        self.assertEqual(self.run_headroom("top", "--gpus", "7", **self.driver({"cards": [{}]})).returncode, 64)

    def test_a_line_for_prompts(self):
        self.fill_box(2, [child.pid for child in self.children[:1]])
        done = self.run_headroom("--line", "--gpus", "sim:2x96GiB@lab")
        self.assertEqual((done.returncode, done.stdout), (0, "1/2 free · 0: 0.1/96.0G · 1: 0.0/96.0G\n"))
        done = self.run_headroom("--line", **self.driver({"cards": [{"utilization": 98}, {}]}))
        self.assertEqual(done.stdout, "2/2 free · 0: 0.0/24.0G 98% · 1: 0.0/24.0G 0%\n")
        done = self.run_headroom("--line", "--gpus", "1", **self.driver({"cards": [{}, {}]}))
        self.assertEqual(done.stdout, "1/1 free · 1: 0.0/24.0G 0%\n")

    def test_a_line_without_a_driver(self):
        done = self.run_headroom("--line")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "no GPU driver\n", ""))
        hanging = {"cards": [{}], "faults": [{"function": "nvmlInit*", "do": "hang"}]}
        done = self.run_headroom("--line", **self.driver(hanging))
        self.assertEqual((done.returncode, done.stdout), (0, "GPU driver does not answer\n"))


if __name__ == "__main__":
    HEADROOM, FAKE_NVML = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main(verbosity=2)
