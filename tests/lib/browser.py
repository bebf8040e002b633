#!/usr/bin/env python3
"""Opens a page in headless Chromium, and writes its contents as JSON.

    browser.py PAGE DIRECTORY

DIRECTORY gets seen.json, and the pictures light.png, dark.png, phone.png and page.pdf. This program
talks to the browser by the DevTools protocol, over a pipe. `requests` in seen.json lists every
address that the page requests besides its own.
"""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SECONDS = 60
DESKTOP, PHONE = (1200, 900), (360, 740)

# Returns the contents of a page as the browser shows it.
LOOK = """(() => {
    const text = (node) => node.textContent.replace(/\\s+/g, ' ').trim();
    const colours = (node) => {
        let behind = node, ground = 'rgba(0, 0, 0, 0)';
        for (; behind && ground === 'rgba(0, 0, 0, 0)'; behind = behind.parentElement) ground = getComputedStyle(behind).backgroundColor;
        return [getComputedStyle(node).color, ground];
    };
    const shown = [...document.querySelectorAll('body *')].filter((node) => node.checkVisibility() && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
    return {
        title: document.title,
        drawn: document.documentElement.dataset.drawn,
        width: document.documentElement.scrollWidth, window: innerWidth,
        ids: [...document.querySelectorAll('[id]')].map((node) => node.id),
        links: [...document.querySelectorAll('a')].map((node) => node.getAttribute('href')),
        figures: [...document.querySelectorAll('data')].map((node) => ({ of: node.dataset.of, value: node.value, text: text(node) })),
        headings: [...document.querySelectorAll('h1, h2, h3')].map((node) => [node.tagName, text(node)]),
        tables: [...document.querySelectorAll('table')].map((table) => ({
            caption: text(table.caption), heads: [...table.tHead.rows[0].cells].map(text), scopes: [...table.querySelectorAll('th')].every((head) => head.scope),
            rows: [...table.tBodies[0].rows].map((row) => [...row.cells].map(text)),
        })),
        findings: [...document.querySelectorAll('.findings li')].map((node) => [node.className, text(node)]),
        missing: [...document.querySelectorAll('.missing')].map(text),
        charts: [...document.querySelectorAll('canvas')].map((canvas) => {
            const chart = Chart.getChart(canvas), copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
            copy.drawImage(canvas, 0, 0);
            const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
            let inked = 0;
            for (let i = 3; i < pixels.length; i += 4) inked += pixels[i] > 0;
            return {
                kind: canvas.dataset.chart, role: canvas.getAttribute('role'), label: canvas.getAttribute('aria-label'), inked, width: canvas.clientWidth, height: canvas.clientHeight,
                axes: Object.fromEntries(Object.entries(chart.scales).map(([name, scale]) => [name, scale.options.title.text])),
                datasets: chart.data.datasets.map((set) => ({ label: set.label, data: set.data, colour: set.borderColor })), labels: chart.data.labels,
            };
        }),
        colours: [...new Set(shown.filter((node) => !node.closest('.skip')).map((node) => JSON.stringify(colours(node))))].map(JSON.parse),
        scripts: document.scripts.length,
        command: text(document.querySelector('.command')),
    };
})()"""


class Browser:
    """One headless browser with one page."""

    def __init__(self):
        program = next((found for found in map(shutil.which, BROWSERS) if found), None)
        if not program:
            sys.exit("browser.py: no Chromium")
        self.place = tempfile.mkdtemp(prefix="penstock-browser.")
        to_us, from_it = os.pipe()
        to_it, from_us = os.pipe()
        self.read_from, self.write_to = to_us, from_us
        high = [os.dup2(to_it, 100 + to_it), os.dup2(from_it, 100 + from_it)]

        def place_pipes():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={self.place}", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=place_pipes, pass_fds=(3, 4), start_new_session=True)
        for fd in (to_it, from_it, *high):
            os.close(fd)
        self.number = 0
        self.rest = b""
        self.events = []
        self.session = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # with its child processes, which write to self.place too
        self.process.wait()
        until = time.monotonic() + 10
        while os.path.exists(self.place) and time.monotonic() < until:
            shutil.rmtree(self.place, ignore_errors=True)
            time.sleep(0.05)

    def message(self, until):
        """Returns the next message from the browser."""
        while b"\0" not in self.rest:
            if not select.select([self.read_from], [], [], max(0, until - time.monotonic()))[0]:
                sys.exit("browser.py: the browser says nothing")
            piece = os.read(self.read_from, 1 << 20)
            if not piece:
                sys.exit("browser.py: the browser has ended")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **parameters):
        self.number += 1
        asked = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        os.write(self.write_to, json.dumps(asked).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            message = self.message(until)
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"browser.py: {method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def wait_for(self, event):
        until = time.monotonic() + SECONDS
        while not any(seen.get("method") == event for seen in self.events):
            self.events.append(self.message(until))

    def evaluate(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            sys.exit(f"browser.py: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def be(self, size, scheme, mobile=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=mobile)
        self.ask("Emulation.setEmulatedMedia", media="screen", features=[{"name": "prefers-color-scheme", "value": scheme}])
        # After two frames, styles have changed and charts are redrawn.
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))")

    def picture(self, path):
        height = self.evaluate("document.documentElement.scrollHeight")
        width = self.evaluate("innerWidth")
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def press_tab(self):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        return self.evaluate("""(() => { const at = document.activeElement, style = getComputedStyle(at);
            return [at.tagName, at.getAttribute('href') || at.getAttribute('aria-label') || at.textContent.slice(0, 40), style.outlineStyle, style.outlineWidth]; })()""")


def happened(browser, method):
    return [seen["params"] for seen in browser.events if seen.get("method") == method]


def main(page, directory):
    browser = Browser()
    seen = {}
    try:
        browser.be(DESKTOP, "light")
        address = "file://" + os.path.abspath(page)
        browser.ask("Page.navigate", url=address)
        browser.wait_for("Page.loadEventFired")
        for name, size, scheme in (("light", DESKTOP, "light"), ("dark", DESKTOP, "dark"), ("phone", PHONE, "light")):
            browser.be(size, scheme, name == "phone")
            seen[name] = browser.evaluate(LOOK)
            browser.picture(f"{directory}/{name}.png")
        browser.be(DESKTOP, "dark")
        seen["tabs"] = []
        while len(seen["tabs"]) < 40 and (stop := browser.press_tab())[0] != "BODY":
            seen["tabs"].append(stop)
        printed = browser.ask("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        with open(f"{directory}/page.pdf", "wb") as file:
            file.write(base64.b64decode(printed["data"]))
        seen["console"] = [" ".join(str(one.get("value", one.get("description"))) for one in event["args"]) for event in happened(browser, "Runtime.consoleAPICalled")]
        seen["exceptions"] = [event["exceptionDetails"].get("exception", {}).get("description") for event in happened(browser, "Runtime.exceptionThrown")]
        seen["log"] = [f"{event['entry']['level']}: {event['entry']['text']}" for event in happened(browser, "Log.entryAdded")]
        seen["requests"] = [event["request"]["url"] for event in happened(browser, "Network.requestWillBeSent") if event["request"]["url"] != address]
    finally:
        browser.close()
    with open(f"{directory}/seen.json", "w", encoding="utf-8") as file:
        json.dump(seen, file)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
