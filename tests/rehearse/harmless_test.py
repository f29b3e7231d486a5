"""What a script would do to the user's files, it does not do while it is rehearsed."""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import programs

START = """
import io, json, os, pathlib, shutil
import numpy, torch
net = torch.nn.Linear(64, 64).to("cuda")
optimizer = torch.optim.AdamW(net.parameters())
def train():
    for _ in range(10):
        net(torch.randn(8, 64, device="cuda")).sum().backward()
        optimizer.step()
"""


def contents(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*") if path.is_file()}


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("model.pt", "weights"), ("log.txt", "old\n"), ("a/b/step-1.pt", "one"),
                           ("a/b/step-2.pt", "two"), ("config.json", "{}"), ("data.npy", "numbers")):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        self.before = contents(self.folder)

    def rehearsed(self, program, *options, code=0):
        (self.folder / "train.py").write_text(START + textwrap.dedent(program) + "\ntrain()\n")
        done = subprocess.run([programs.HEADROOM, "rehearse", "--json", "--gpus", "sim:1x24GiB", *options, "--",
                               sys.executable, "train.py"], capture_output=True, text=True, timeout=600,
                              env=programs.environment(), cwd=self.folder, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        (self.folder / "train.py").unlink()
        return json.loads(done.stdout)

    def assert_unharmed(self):
        after = contents(self.folder)
        self.assertEqual({name: after.get(name) for name in self.before}, self.before)
        return sorted(set(after) - set(self.before))

    def test_what_was_there_is_not_overwritten_and_reads_as_written(self):
        found = self.rehearsed("""
            with open("log.txt", "a") as log: log.write("new\\n")
            assert open("log.txt").read() == "old\\nnew\\n"
            pathlib.Path("config.json").write_text("[1]")
            assert json.load(open("config.json")) == [1]
            numpy.save("data.npy", numpy.arange(3))
            assert numpy.load("data.npy").tolist() == [0, 1, 2]
            with open("a/b/step-1.pt", "r+") as file: file.write("X")
            shutil.copyfile("config.json", "a/b/step-2.pt")
            assert open("a/b/step-2.pt").read() == "[1]"
            with os.fdopen(os.open("log.txt", os.O_WRONLY | os.O_TRUNC), "w") as log: log.write("0")
            with os.fdopen(os.open("model.pt", os.O_WRONLY | os.O_TRUNC), "w") as file: file.write("0")
            os.truncate("config.json", 0)
            """)
        self.assertEqual(self.assert_unharmed(), [])
        self.assertEqual(set(found["not_written"]),
                         {"log.txt", "config.json", "data.npy", "model.pt", "a/b/step-1.pt", "a/b/step-2.pt"})

    def test_what_was_there_is_not_removed_or_moved(self):
        found = self.rehearsed("""
            os.remove("log.txt")
            pathlib.Path("config.json").unlink()
            shutil.rmtree("a")
            os.replace("model.pt", "elsewhere.pt")
            open("fresh.json", "w").write("{}")
            os.replace("fresh.json", "data.npy")
            os.rename("data.npy", "moved.npy")
            try: os.rmdir("a/b")
            except OSError: pass
            """)
        self.assertEqual(self.assert_unharmed(), ["moved.npy"], "the script's own, under its last name")
        self.assertLessEqual({"log.txt", "config.json", "a", "model.pt", "data.npy"}, set(found["not_written"]))

    def test_what_is_removed_is_gone_for_the_script(self):
        self.rehearsed("""
            import glob
            os.remove("log.txt")
            assert not os.path.exists("log.txt") and "log.txt" not in os.listdir(".")
            try: open("log.txt"); raise SystemExit("it is there")
            except FileNotFoundError: pass
            while len(glob.glob("a/b/*.pt")) > 1: os.remove(sorted(glob.glob("a/b/*.pt"))[0])
            shutil.rmtree("a")
            assert not os.path.exists("a/b/step-2.pt")
            open("log.txt", "w").write("again")
            assert open("log.txt").read() == "again" and os.path.exists("log.txt")
            """)
        self.assertEqual(self.assert_unharmed(), [])

    def test_what_is_renamed_is_read_under_its_new_name(self):
        """A script that renamed a file that was there could not open it afterwards, and ended with
        FileNotFoundError: rotating checkpoints is usual."""
        found = self.rehearsed("""
            os.rename("log.txt", "moved.txt")
            assert open("moved.txt").read() == "old\\n" and os.path.getsize("moved.txt") == 4
            assert not os.path.exists("log.txt") and "moved.txt" in os.listdir(".")
            shutil.move("moved.txt", "moved-2.txt"); pathlib.Path("moved-2.txt").rename("moved-3.txt")
            assert pathlib.Path("moved-3.txt").read_text() == "old\\n" and not os.path.exists("moved.txt")
            with open("moved-3.txt", "a") as log: log.write("new\\n")
            os.chmod("moved-3.txt", 0o600)
            assert open("moved-3.txt").read() == "old\\nnew\\n"
            os.replace("moved-3.txt", "config.json")
            assert open("config.json").read() == "old\\nnew\\n"
            os.rename("data.npy", "a/b/step-1.pt")
            assert open("a/b/step-1.pt").read() == "numbers"
            with open("a/b/step-1.pt", "a") as file: file.write("!")
            assert open("a/b/step-1.pt").read() == "numbers!"
            for wrong in (("data.npy", "x"), ("nothing", "x")):
                try: os.rename(*wrong); raise SystemExit("it was renamed")
                except FileNotFoundError: pass
            """)
        self.assertEqual(self.assert_unharmed(), [])
        self.assertLessEqual({"log.txt", "config.json", "data.npy", "a/b/step-1.pt"}, set(found["not_written"]))

    def test_checkpoints_rotate(self):
        (self.folder / "last.pt").write_text("last")
        (self.folder / "prev.pt").write_text("prev")
        self.before = contents(self.folder)
        self.rehearsed("""
            os.replace("prev.pt", "best.pt")
            shutil.move("last.pt", "prev.pt")
            torch.save({"step": 1}, "last.pt")
            assert (open("best.pt").read(), open("prev.pt").read()) == ("prev", "last")
            assert torch.load("last.pt")["step"] == 1
            for step in (2, 3):
                os.replace("prev.pt", "best.pt"); os.replace("last.pt", "prev.pt"); torch.save({"step": step}, "last.pt")
            assert [torch.load(name + ".pt")["step"] for name in ("best", "prev", "last")] == [1, 2, 3]
            """)
        self.assertEqual(self.assert_unharmed(), [])

    def test_folders_are_renamed_too(self):
        self.rehearsed("""
            os.rename("a", "before")
            assert open("before/b/step-1.pt").read() == "one" and sorted(os.listdir("before/b")) == ["step-1.pt", "step-2.pt"]
            assert not os.path.exists("a") and not os.path.exists("a/b/step-1.pt")
            os.remove("before/b/step-2.pt"); open("before/b/step-1.pt", "w").write("1")
            os.mkdir("a"); assert os.listdir("a") == []
            open("a/new.txt", "w").write("new")
            shutil.rmtree("before"); os.rename("a", "before")
            assert os.listdir("before") == ["new.txt"] and open("before/new.txt").read() == "new"
            os.mkdir("staging"); open("staging/b", "w").write("b")
            os.rename("staging", "a"); assert open("a/b").read() == "b"
            """)
        self.assertEqual([one for one in self.assert_unharmed() if "step" in one], [])

    def test_locks_and_links_of_the_script_are_removed(self):
        self.rehearsed("""
            os.close(os.open("a.lock", os.O_CREAT | os.O_EXCL)); os.remove("a.lock")
            assert not os.path.exists("a.lock")
            os.symlink("log.txt", "link"); os.remove("link")
            os.chmod("log.txt", 0o600); os.utime("log.txt", (0, 0))
            """)
        self.assertEqual(self.assert_unharmed(), [])
        self.assertGreater((self.folder / "log.txt").stat().st_mtime, 1e9)

    def test_a_link_of_the_script_leads_to_no_harm(self):
        self.rehearsed("""
            os.symlink("model.pt", "latest.pt")
            open("latest.pt", "w").write("new"); torch.save(net.state_dict(), "latest.pt")
            os.link("log.txt", "log-2.txt")
            open("log-2.txt", "w").write("new")
            os.symlink("a", "elsewhere")
            open("elsewhere/b/step-1.pt", "w").write("new"); os.remove("elsewhere/b/step-2.pt")
            os.close(os.open("elsewhere/lock", os.O_CREAT | os.O_EXCL)); os.remove("a/lock")
            assert not os.path.exists("a/lock")
            for link in ("latest.pt", "elsewhere", "log-2.txt"): os.unlink(link)
            """)
        self.assertEqual(self.assert_unharmed(), [])

    def test_new_files_are_the_scripts_own(self):
        found = self.rehearsed("""
            os.makedirs("runs/1")
            open("runs/1/log.txt", "w").write("loss 0")
            open("gone.txt", "w").close(); os.remove("gone.txt")
            open("runs/temporary", "w").close(); os.replace("runs/temporary", "runs/final")
            os.mkdir("scratch"); open("scratch/x", "w").close(); shutil.rmtree("scratch")
            """)
        self.assertEqual(self.assert_unharmed(), ["runs/1/log.txt", "runs/final"])
        self.assertEqual(set(found["written"]), {"runs/1/log.txt", "runs/final"})
        self.assertEqual(found["not_written"], [])

    def test_checkpoints_are_not_written_and_load_as_they_were_saved(self):
        found = self.rehearsed("""
            from safetensors.torch import load_file, save_file
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
                     "order": torch.arange(5)}
            for path in ("model.pt", "new.pt", "checkpoints/step-3/model.pt"):
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                torch.save(state, path)
                again = torch.load(path, map_location="cuda")
                assert again["epoch"] == 3 and again["order"].tolist() == [0, 1, 2, 3, 4]
                assert again["net"]["weight"].is_cuda and again["net"]["weight"].shape == (64, 64)
                net.load_state_dict(again["net"]); optimizer.load_state_dict(again["optimizer"])
                assert torch.load(path, map_location="cpu")["net"]["weight"].device.type == "cpu"
            open("checkpoints/step-3/config.json", "w").write("{}")
            shutil.copyfile("new.pt", "best.pt")
            file = io.BytesIO(); torch.save(state, file); file.seek(0)
            assert torch.load(file)["epoch"] == 3
            save_file({"w": net.weight}, "weights.safetensors")
            assert load_file("weights.safetensors")["w"].shape == (64, 64)
            assert os.path.exists("new.pt")
            with open("handle.pt", "wb") as handle: torch.save(state, handle)
            """)
        self.assertEqual(self.assert_unharmed(), [])
        self.assertLessEqual({"model.pt", "new.pt", "best.pt", "checkpoints/step-3", "weights.safetensors",
                              "handle.pt"}, set(found["not_written"]))

    def test_in_compute_mode_writes_are_kept_if_asked(self):
        save = """
            torch.save({"w": net.weight.detach()}, "new.pt")
            assert torch.equal(torch.load("new.pt", map_location="cuda")["w"], net.weight)
            """
        self.rehearsed(save, "--mode", "compute")
        self.assertEqual(self.assert_unharmed(), [])
        self.rehearsed(save, "--mode", "compute", "--keep-writes")
        self.assertEqual(self.assert_unharmed(), ["new.pt"])

    def test_a_script_that_is_killed_leaves_no_checkpoint(self):
        self.rehearsed("""
            torch.save(net.state_dict(), "new.pt")
            net(torch.randn(8, 64, device="cuda")).sum().backward()
            print("about to end"); import sys; sys.stdout.flush()
            raise SystemExit(3)
            """, code=1)
        self.assertEqual(self.assert_unharmed(), [])


class Ends(unittest.TestCase):
    def test_finally_and_atexit_run_after_the_last_step(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "train.py"
            program.write_text("import atexit\n" + START + textwrap.dedent("""
                atexit.register(lambda: print("at exit"))
                try: train()
                finally: print("finally")
                """))
            done = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "sim:1x24GiB", "--steps", "2", "--",
                                   sys.executable, program], capture_output=True, text=True, timeout=600,
                                  env=programs.environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("finally\nat exit\n", done.stdout)
        self.assertIn("Rehearsed 2 steps", done.stdout)

    def test_an_out_of_memory_is_known_whatever_prints_it(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "train.py"
            program.write_text("import sys\nsys.excepthook = lambda *error: print('my own words')\n" + START +
                               "torch.empty(1 << 40, device='cuda')\n")
            done = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "sim:1x24GiB", "--",
                                   sys.executable, program], capture_output=True, text=True, timeout=600,
                                  env=programs.environment(), check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("my own words", done.stdout)

    def test_a_script_that_fails_shows_its_own_error(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "train.py"
            program.write_text(START + "net(torch.ones(2, 64).cuda())\nraise ValueError('mine')\n")
            done = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "sim:1x24GiB", "--",
                                   sys.executable, program], capture_output=True, text=True, timeout=600,
                                  env=programs.environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ValueError: mine", done.stderr)
        self.assertIn("the script failed", done.stderr)


if __name__ == "__main__":
    unittest.main()
