"""A `headroom log --listen` in a world of its own, with a fake driver, for tests in Python."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

# Debian's python3-prometheus-client, also for a Python of a virtual environment.
sys.path.append("/usr/lib/python3/dist-packages")
from prometheus_client.openmetrics import parser as openmetrics_parser  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

PATIENCE_S = 60  # generous: no test passes because this time has passed
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def until(what, ready):
    """The first true value of ready()."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := ready()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {PATIENCE_S} s: {what}")
        time.sleep(0.02)
    return value


def pids_are_ours():
    """False in a container, where the driver's process numbers are those of others."""
    return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"


def default_signals():
    """A runner in the background ignores some; a user does not."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def promtool(*words, text=None):
    """What promtool complains about; skips the test where it is not installed."""
    if not shutil.which("promtool"):
        raise unittest.SkipTest("no promtool: scripts/setup.sh promtool installs it")
    done = subprocess.run(["promtool", *words], input=text, text=True, timeout=PATIENCE_S,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout if done.returncode else ""


class World:
    """A folder with a driver, a state and leases; `with` removes it and ends what was started."""

    def __init__(self, headroom, fake_nvml, cards=(), faults=()):
        self.headroom, self.folder, self.started = headroom, tempfile.mkdtemp(), []
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": self.folder, "LC_ALL": "C.UTF-8",
            "HEADROOM_STATE_DIR": self.path("state"), "HEADROOM_LEASE_DIR": self.path("leases"),
            "HEADROOM_NVML": self.path("no-driver.so")}
        self.environment.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
        if cards:
            self.environment.update(HEADROOM_NVML=fake_nvml, HEADROOM_FAKE_NVML=self.path("machine.json"),
                                    HEADROOM_FAKE_NVML_LOG=self.path("calls"))
            self.driver(cards, faults)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def driver(self, cards, faults=()):
        with open(self.path("new.json"), "w") as file:
            json.dump({"cards": list(cards), "faults": list(faults)}, file)
        os.rename(self.path("new.json"), self.path("machine.json"))

    def driver_calls(self):
        """How often the driver was asked for a card's memory."""
        with open(self.path("calls")) as file:
            return file.read().count("nvmlDeviceGetMemoryInfo")

    def publish_status(self, pid):
        """What a training of this process would publish (docs/formats/job-status.md)."""
        with open(f"/proc/{pid}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        status = {"schema": 1, "pid": pid, "start_ticks": ticks, "boot_id": boot,
                  "pid_namespace": os.stat("/proc/self/ns/pid").st_ino, "what": "train gpt2", "gpus": ["GPU-1"],
                  "step": 17, "steps": 2000, "loss": 3.5, "micro_batch": 4, "batch": 32, "plan": "as asked",
                  "ooms_survived": 2, "rows_per_s": 81.5, "updated_unix_ms": 1790000000000}
        os.makedirs(self.path("state/status"))
        with open(self.path(f"state/status/{pid}-{ticks}.json"), "w") as file:
            json.dump(status, file)

    def start(self, *words):
        process = subprocess.Popen([self.headroom, *words], env=self.environment, text=True,
                                   preexec_fn=default_signals, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(process)
        return process

    def run(self, *words):
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def holder(self):
        """A process that does nothing."""
        process = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def listen(self, *words, address="127.0.0.1:0"):
        return Server(self.start("log", "--listen", address, *words))


class Server:
    def __init__(self, process):
        self.process = process
        self.said = []
        too_late = threading.Timer(PATIENCE_S, process.kill)  # which ends its output
        too_late.start()
        try:
            for line in process.stderr:
                self.said.append(line)
                if "listening on " in line:
                    break
            else:
                raise AssertionError("it ended: " + "".join(self.said))
        finally:
            too_late.cancel()
        self.url = self.said[-1].split()[-1]
        host, _, port = self.url.removeprefix("http://").removesuffix("/metrics").rpartition(":")
        self.address = (host.strip("[]"), int(port))

    def ask(self, path, method="GET", body=None, **headers):
        """Status, headers and text of an answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def scrape(self):
        """The samples of a classic scrape: name -> list of (labels, value)."""
        return samples(classic(self.ask("/metrics")[2]))

    def connect(self, sent=b""):
        client = socket.create_connection(self.address, timeout=PATIENCE_S)
        client.sendall(sent)
        return client

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def allocated_kib(self):
        """Its own memory, without the pages of programs and libraries, which come and go with the machine's."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))

    def end(self, number=signal.SIGTERM):
        """Its exit code, as a shell shows it."""
        self.process.send_signal(number)
        code = self.process.wait(timeout=PATIENCE_S)
        return code if code >= 0 else 128 - code


def classic(text):
    return list(text_string_to_metric_families(text))


def openmetrics(text):
    return list(openmetrics_parser.text_string_to_metric_families(text))


def samples(families):
    found = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found
