#!/usr/bin/env python3
"""What a person sees in a real terminal (tmux, 80 x 24 cells): pictures fit, a wait is one line.

    terminal_test.py /path/to/headroom
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

HEADROOM = ""
WIDTH, HEIGHT = 80, 24


class Terminal:
    """One tmux server of its own with one window, in which commands are typed into a shell."""

    def __init__(self, folder, width=WIDTH, height=HEIGHT, **more):
        self.socket = os.path.join(folder, "tmux")
        environment = {
            "PATH": os.environ["PATH"], "HOME": folder, "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8", "HEADROOM_STATE_DIR": os.path.join(folder, "state"),
            "HEADROOM_LEASE_DIR": os.path.join(folder, "leases"),
            "HEADROOM_NVML": os.path.join(folder, "no-driver.so"), "PS1": "$ ",
        }
        environment.update(more)
        environment.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
        subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", "new-session", "-d",
                        "-x", str(width), "-y", str(height), "sh"], env=environment, check=True)

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *words], check=True, text=True,
                              capture_output=True).stdout

    def type(self, text):
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def press(self, key):
        self.tmux("send-keys", key)

    def screen(self):
        """The lines as they are seen, without empty ones at the end."""
        return self.tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def everything(self, colours=False):
        """All lines as they were written, scrolled away or not; -J joins what was wrapped."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-", *(["-e"] if colours else []))

    def until(self, enough):
        deadline = time.monotonic() + 30
        while not enough(self.screen()):
            if time.monotonic() > deadline:
                raise AssertionError("not in 30 s; the screen is\n" + "\n".join(self.screen()))
            time.sleep(0.05)
        return self.screen()

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], check=False)


class InATerminal(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="headroom-test-")
        self.terminal = Terminal(self.folder.name)

    def tearDown(self):
        self.terminal.close()
        self.folder.cleanup()

    def run_and_wait(self, command):
        """Once a terminal: the end of an earlier command would be taken for this one's."""
        self.terminal.type(f"clear; {command}; echo exit-$?")
        return self.terminal.until(lambda lines: any(re.match(r"exit-\d", l) for l in lines))

    def test_the_picture_of_eight_cards_fits_into_the_screen(self):
        screen = self.run_and_wait(f"{HEADROOM} --gpus sim:8x24GiB")
        written = self.terminal.everything().rstrip("\n").split("\n")
        self.assertLessEqual(max(len(line.rstrip()) for line in written), WIDTH)
        self.assertIn("exit-0", screen)
        self.assertTrue(any("Headroom" in line for line in screen), "the title is still to be seen")
        self.assertTrue(any(line.startswith("Next: ") for line in screen))
        self.assertEqual(sum("24.00 GiB" in line and "usable" in line for line in screen), 8)

    def test_sixty_columns_are_enough(self):
        """Lines were 72 wide, and broke inside a figure."""
        self.terminal.close()
        for number, command in enumerate(("", "who", "gpus", "queue", "lease list")):
            folder = os.path.join(self.folder.name, str(number))
            os.makedirs(folder)
            self.terminal = Terminal(folder, width=60)
            screen = self.run_and_wait(f"{HEADROOM} {command} --gpus sim:8x24GiB")
            self.assertIn("exit-0", screen, command)
            written = self.terminal.everything().rstrip("\n").split("\n")
            longest = max((line.rstrip() for line in written if HEADROOM not in line), key=len)
            self.assertLessEqual(len(longest), 60, f"{command}: {longest}")
            self.terminal.close()

    def test_estimates_fit_into_the_screen(self):
        """Sentences broke inside a figure, and the table of techniques lost the options."""
        card = "--quick --gpus 'RTX 4090'"
        for number, (width, command) in enumerate((
                (60, f"estimate llama-2-7b --techniques {card} --gpus 'A100 80GB'"),
                (80, f"estimate llama-2-7b --techniques {card}"), (80, "cards 4090"),
                (80, "clean --gpus sim:1x24GiB"), (60, "clean --gpus sim:1x24GiB"))):
            self.terminal.close()
            folder = os.path.join(self.folder.name, f"estimate{number}")
            os.makedirs(folder)
            self.terminal = Terminal(folder, width=width)
            self.run_and_wait(f"{HEADROOM} {command}")
            written = self.terminal.everything().rstrip("\n").split("\n")
            lines = [line.rstrip() for line in written if HEADROOM not in line]
            longest = max(lines, key=len)
            self.assertLessEqual(len(longest), width, f"{command}: {longest}")
            if "--techniques" in command:
                self.assertIn("  --quantize 4bit --lora-rank 8", lines)

    def test_the_picture_has_colours(self):
        self.run_and_wait(f"{HEADROOM} --gpus sim:1x24GiB")
        self.assertIn("\033[", self.terminal.everything(colours=True))

    def test_no_color_takes_the_colours_away(self):
        self.run_and_wait(f"NO_COLOR=1 {HEADROOM} --gpus sim:1x24GiB")
        self.assertNotIn("\033[", self.terminal.everything(colours=True))

    def fill_box(self):
        """A shared box with one card, 20 of 24 GiB of which this process holds."""
        with open("/proc/self/stat") as stat:
            start_ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
        boxes = os.path.join(self.folder.name, "state", "boxes")
        os.makedirs(boxes)
        with open(os.path.join(boxes, "lab.json"), "w") as box:
            json.dump({"cards": [{"total_bytes": 24 << 30}],
                       "shares": [{"pid": os.getpid(), "start_ticks": start_ticks, "card": 0,
                                   "used_bytes": 20 << 30}]}, box)

    def test_a_wait_is_one_line_that_changes(self):
        waiting = re.compile(r"waiting .*: need 10\.00 GiB; best is GPU 0 with 4\.00 GiB")

        def waits(lines):
            return [line for line in lines if waiting.match(line)]

        self.fill_box()
        self.terminal.type(f"clear; {HEADROOM} pick --gpus sim:1x24GiB@lab --need 10GiB --wait; "
                           "echo exit-$?")
        first = waits(self.terminal.until(waits))
        later = waits(self.terminal.until(lambda lines: waits(lines) and waits(lines) != first))
        self.assertEqual(len(first), 1)
        self.assertEqual(len(later), 1, "drawn over, not below")
        self.assertEqual(len(self.terminal.screen()), 1, "and nothing else")
        self.terminal.press("C-c")
        screen = self.terminal.until(lambda lines: any("exit-" in line for line in lines))
        self.assertEqual(screen[0], "exit-130", "the line of the wait is gone")


if __name__ == "__main__":
    HEADROOM = sys.argv.pop(1)
    unittest.main(verbosity=2)
