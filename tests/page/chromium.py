"""A Chromium without a window, driven over the DevTools protocol on two pipes: no network, no package
beside `chromium`. Every wait ends after `PATIENCE` seconds."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 60
SWITCHES = ["--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
            "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND"]
# True after the page's first drawing; false if its script has failed.
OPENED = """new Promise(done => { const look = () => {
  if (location.protocol !== 'file:' || document.readyState !== 'complete') return setTimeout(look, 5);
  done(!!window.headroomReport && headroomReport.ready.then(() => true, () => false)); }; look(); })"""
KEY_CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Escape": 27, "Home": 36,
             "End": 35, "PageUp": 33, "PageDown": 34}


def program():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    def __init__(self, *switches):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_child, self.out = os.pipe()
        self.into, from_child = os.pipe()
        # Chromium reads commands from descriptor 3 and writes to descriptor 4.
        command = [program(), *SWITCHES, f"--user-data-dir={self.folder.name}", *switches, "about:blank"]
        start = f'exec 3<&{to_child} 4>&{from_child}; exec "$@"'
        self.process = subprocess.Popen(["bash", "-c", start, "bash", *command], pass_fds=(to_child, from_child),
                                        stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.folder.name})
        os.close(to_child)
        os.close(from_child)
        self.number, self.buffer, self.events, self.session = 0, b"", [], None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.write(self.out, b'{"id":0,"method":"Browser.close"}\0')
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.folder.cleanup()

    def receive(self, until):
        while b"\0" not in self.buffer:
            if not select.select([self.into], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self.into, 1 << 20)
            if not data:
                raise ConnectionError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=True, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session and self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        until = time.monotonic() + PATIENCE
        while (answer := self.receive(until)).get("id") != self.number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path, width=1200, height=900, ratio=1, dark=False):
        """Shows the page in a new tab; false if its script fails."""
        if self.session:
            self.call("Target.closeTarget", session=False, targetId=self.target)
        self.target = self.call("Target.createTarget", session=False, url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        self.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        self.size(width, height, ratio)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        return self.run(OPENED)

    def size(self, width, height, ratio=1):
        self.view = (width, height, ratio)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio,
                  mobile=False)

    def run(self, expression):
        """The value of an expression, or of the promise that it gives."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", str(answer)))
        return answer["result"].get("value")

    def frame(self):
        """Returns after the page has drawn what it was asked for."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def mouse(self, kind, x, y, button="none", **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, **more)

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.frame()

    def click(self, x, y, count=1):
        self.mouse("mouseMoved", x, y)
        for number in range(1, count + 1):
            self.mouse("mousePressed", x, y, "left", clickCount=number)
            self.mouse("mouseReleased", x, y, "left", clickCount=number)
        self.frame()

    def drag(self, x0, y, x1, modifiers=0):
        self.mouse("mouseMoved", x0, y)
        self.mouse("mousePressed", x0, y, "left", clickCount=1, modifiers=modifiers)
        for share in (0.3, 0.7, 1):
            self.mouse("mouseMoved", x0 + (x1 - x0) * share, y, "left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", x1, y, "left", clickCount=1, modifiers=modifiers)
        self.frame()

    def wheel(self, x, y, delta):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta)
        self.frame()

    def key(self, key, shift=False):
        code = KEY_CODES.get(key)
        press = {"key": key, "modifiers": 8 if shift else 0}
        press.update({"windowsVirtualKeyCode": code} if code else {"text": key})
        self.call("Input.dispatchKeyEvent", type="keyDown", **press)
        self.call("Input.dispatchKeyEvent", type="keyUp", **press)
        self.frame()

    def picture(self, path, whole=True):
        """Saves what is visible, or the whole page."""
        width, height, ratio = self.view
        if whole:
            self.size(width, int(self.run("document.documentElement.scrollHeight")), ratio)
            self.frame()
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
        self.size(width, height, ratio)

    def complaints(self):
        """Errors and warnings of the console, exceptions, and requests to anything but files."""
        found = []
        for event in self.events:
            method, told = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(told["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                found.append(str(told["args"]))
            elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(told["entry"]["text"])
            elif method == "Network.requestWillBeSent" and not told["request"]["url"].startswith(("file:", "data:")):
                found.append("requested " + told["request"]["url"][:100])
        return found
