// A headless Chromium, driven by its DevTools protocol through a pipe: no port, no library.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export function find_chromium() {
  return [process.env.WEFT_CHROMIUM, "chromium", "chromium-browser", "google-chrome"].find((name) => name && spawnSync(name, ["--version"]).status === 0);
}

export class Browser {
  static async start(program) {
    const browser = new Browser();
    browser.home = mkdtempSync(join(tmpdir(), "weft-page-"));
    const options = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars", `--user-data-dir=${browser.home}`];
    if (process.getuid?.() === 0) options.push("--no-sandbox");  // it refuses to run as root with one
    browser.process = spawn(program, options, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    browser.waiting = new Map();
    browser.heard = [];
    let text = "";
    browser.process.stdio[4].on("data", (bytes) => {
      text += bytes;
      for (let end; (end = text.indexOf("\0")) >= 0; text = text.slice(end + 1)) browser.on_message(JSON.parse(text.slice(0, end)));
    });
    browser.process.on("exit", () => browser.waiting.forEach(({ fail }) => fail(new Error("the browser has ended"))));
    const { targetId } = await browser.send("Target.createTarget", { url: "about:blank" });
    browser.session = (await browser.send("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    for (const what of ["Page", "Runtime", "Log", "Network"]) await browser.send(`${what}.enable`);
    return browser;
  }

  send(method, params = {}) {
    const id = (this.last = (this.last ?? 0) + 1);
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId: this.session })}\0`);
    return new Promise((done, fail) => this.waiting.set(id, { done, fail }));
  }
  on_message(m) {
    if (m.id === undefined) return void this.heard.push(m);
    const { done, fail } = this.waiting.get(m.id);
    this.waiting.delete(m.id);
    if (m.error) fail(new Error(m.error.message)); else done(m.result);
  }

  // The value of an expression within the page.
  async see(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }
  async wait_for(expression, seconds = 120) {
    for (const end = Date.now() + 1000 * seconds; Date.now() < end; await new Promise((done) => setTimeout(done, 50))) {
      if (await this.see(expression).catch(() => false)) return;
    }
    throw new Error(`not within ${seconds} s: ${expression}`);
  }
  async open(address, { width = 1200, height = 900, scale = 1, dark = false } = {}) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: scale, mobile: width < 600 });
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
    await this.send("Page.navigate", { url: "about:blank" });
    await this.send("Page.navigate", { url: address });
    await this.wait_for("document.documentElement.dataset.ready === 'yes'");
  }
  async drag(x1, x2, y) {
    const mouse = (type, x) => this.send("Input.dispatchMouseEvent", { type, x, y, button: "left", buttons: type === "mouseReleased" ? 0 : 1, clickCount: 1 });
    await mouse("mousePressed", x1);
    for (let i = 1; i <= 4; ++i) await mouse("mouseMoved", x1 + ((x2 - x1) * i) / 4);
    await mouse("mouseReleased", x2);
  }
  async press(key) {
    for (const type of ["keyDown", "keyUp"]) await this.send("Input.dispatchKeyEvent", { type, key, code: key, text: type === "keyDown" && key.length === 1 ? key : undefined });
  }
  // A picture (PNG) of the whole page, or of what stands between two heights.
  async picture(from = 0, to = null) {
    const { width, height } = await this.see("({ width: document.documentElement.clientWidth, height: document.documentElement.scrollHeight })");
    const { data } = await this.send("Page.captureScreenshot", { captureBeyondViewport: true, clip: { x: 0, y: from, width, height: (to ?? height) - from, scale: 1 } });
    return Buffer.from(data, "base64");
  }
  // What broke, or what the content security policy kept from loading.
  complaints() {
    return this.heard.flatMap(({ method, params: p }) => (method === "Runtime.exceptionThrown" ? [p.exceptionDetails.exception?.description ?? p.exceptionDetails.text]
      : method === "Log.entryAdded" && ["error", "warning"].includes(p.entry.level) ? [`${p.entry.text} ${p.entry.url ?? ""}`]
        : method === "Runtime.consoleAPICalled" && p.type === "error" ? [JSON.stringify(p.args)] : method === "Page.javascriptDialogOpening" ? [`a dialog: ${p.message}`] : []));
  }
  async close() {
    const ended = new Promise((done) => this.process.once("exit", done));
    this.session = undefined;
    this.send("Browser.close").catch(() => undefined);
    await Promise.race([ended, new Promise((done) => setTimeout(done, 3000))]);
    if (this.process.exitCode === null) this.process.kill("SIGKILL");
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }
}
