// The live page in a headless Chromium, on made-up runs.
//   node tests/page/page_test.mjs FOLDER [PICTURES]   FOLDER: the built page (build/cpu/page); PICTURES: a folder for screenshots
// Ends with status 77, and says why, where there is no Chromium or no page.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Browser, find_chromium } from "./browser.mjs";
import { made_up_runs, serve } from "./made_up_runs.mjs";

const [folder, pictures] = process.argv.slice(2), program = find_chromium();
const why = !program ? "there is no chromium here (Debian's package chromium; or WEFT_CHROMIUM names one)" : !existsSync(join(folder ?? "", "page.js")) ? `there is no page in ${folder}: it is built where esbuild and node-chart.js are` : "";
if (why) {
  console.log(`skipped: ${why}`);
  process.exit(77);
}

const runs = made_up_runs(), server = await serve(runs, folder), browser = await Browser.start(program);
let failed = 0;
async function test(sentence, body) {
  const begin = Date.now();
  const error = await body().then(() => null, (e) => e);
  console.log(`${error ? "FAILED" : "passed"} ${sentence} (${Date.now() - begin} ms)`);
  if (error) console.log(error.stack);
  failed += error ? 1 : 0;
}

const open = (query = "", options = {}) => browser.open(server.address + query, options);
const quoted = JSON.stringify;
// What stands beside a number: the exact one.
const exact = (key, within = "main") => browser.see(`(document.querySelector(${quoted(`${within} [data-key=${quoted(key)}]`)}) ?? {}).dataset?.value ?? null`);
const text = (selector) => browser.see(`document.querySelector(${quoted(selector)})?.textContent ?? null`);
const count = (selector) => browser.see(`document.querySelectorAll(${quoted(selector)}).length`);
const shows = async (key, x, within) => assert.equal(await exact(key, within), String(x), `${within ?? "page"}: ${key}`);
const visible = (id) => browser.see(`!document.getElementById(${quoted(id)}).hidden`);
const focus = (selector) => browser.see(`document.querySelector(${quoted(selector)}).focus()`);

await test("every panel shows the numbers of the records", async () => {
  await open();
  await browser.wait_for("!document.getElementById('tensors').hidden && !document.getElementById('machine').hidden");
  const run = runs[0].details(), plan = runs[0].plan(), record = run.latest;
  for (const [key, x] of [["step", 1240], ["total", 5000], ["eta_s", run.eta_s], ["price.so_far", run.price.so_far], ["running_s", run.running_s], ["held_out.loss", run.held_out.loss], ["loss", record.loss]]) await shows(key, x, "#progress");
  assert.equal(await text("#progress .progress p"), "1\u2009240 of 5\u2009000 steps24.8\u00a0%");
  for (const key of ["loss", "grad_norm", "lr"]) await shows(key, record[key], `#learning [data-chart=${key}]`);
  await shows("held_out.loss", run.held_out.loss, "#learning");
  for (const t of run.tasks) await shows(t.name, t.value, "#learning");
  for (const key of ["tokens_per_s", "step_time_s", "mfu"]) {
    await shows(key, record[key], "#speed");
    await shows(`speed.${key}`, run.speed[key], "#speed");
  }
  for (const key of ["compute_s", "data_s", "eval_s", "save_s"]) {
    await shows(`time.${key}`, run.time[key], "#speed");
    await shows(`time_recent.${key}`, run.time_recent[key], "#speed");
  }
  for (const axis of ["dp", "tp"]) {
    await shows(`time.waits_s.${axis}`, run.time.waits_s[axis], "#speed");
    await shows(`waits_s.${axis}`, record.waits_s[axis], "#waits");
  }
  await shows("memory.used_bytes", 5.2e9, "#memory");
  for (const m of plan.classes[0].memory) await shows(`plan.0.${m.name}`, m.bytes, "#memory");
  await shows("plan.0.total_bytes", plan.classes[0].total_bytes, "#memory");
  for (const c of plan.classes[0].communication) await shows(`sent.0.${c.axis}.${c.kind}`, c.bytes_sent, "#waits");
  for (const c of run.checkpoints) await shows(`checkpoint.${c.step}.bytes`, c.bytes, "#events");
  for (const e of runs[0].held_out) await shows(`evaluation.${e.step}`, e.loss, "#events");
  for (const [key, x] of [["busy", 0.94], ["watts.package-0", 338.4], ["celsius", 71.5], ["memory_used", 811748818944 - 590558003200]]) await shows(`machine.${key}`, x, "#machine");
  await shows("device.nvme0n1.written", 8.8e7, "#machine");
  await shows("held_out.perplexity", run.held_out.perplexity, "#others");
  for (const t of plan.tensors.filter((t) => t.bytes !== null)) await shows(`tensor.${t.name}.bytes`, t.bytes, "#tensors");
  assert.match(await text("#progress .about"), / · weft 0\.1\.0$/);
  assert.equal(await text("#recipe code"), "0.001");
  assert.equal(await visible("experts"), false);
});

await test("maps are read by the keyboard", async () => {
  const heat = runs[0].heat("grad_norm", null, null, 120);
  await focus("#gradients .heat");
  for (const key of ["ArrowRight", "ArrowDown", "ArrowRight"]) await browser.press(key);
  await shows("grad_norms", heat.values[1][1], "#gradients .readout");
  assert.match(await text("#gradients .readout"), /^layers\.0\.attention_norm, steps 11 to 20: /);
  const ratios = runs[0].heat("update_ratio", null, null, 120), norms = runs[0].heat("weight_norm", null, null, 120);
  for (const [of, key, map] of [["update_ratio", "update_ratios", ratios], ["weight_norm", "weight_norms", norms]]) {
    const within = `#weights [data-map=${of}]`;
    await focus(`${within} .heat`);
    for (const key of ["ArrowRight", "ArrowDown", "ArrowDown", "ArrowRight"]) await browser.press(key);
    await shows(key, map.values[2][1], `${within} .readout`);
    assert.match(await text(`${within} .readout`), /^layers\.0\.q, step 20: /);
  }
  assert.equal(await text("#weights [data-map=update_ratio] .why"), "0 before the update, not finite, or not recorded, at some step (a dash): layers.0.attention_norm.");
  assert.equal(await text("#weights [data-map=weight_norm] .why"), "");
  const traffic = runs[0].traffic();
  for (const a of traffic.axes) {
    await shows(`traffic.${a.axis}.bytes`, a.bytes, "#waits");
    await shows(`traffic.${a.axis}.rate`, a.bytes / traffic.step_time_s, "#waits");
  }
  const cell = async (sum) => {
    await focus("#waits .heat");
    for (const key of ["Home", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowRight"]) await browser.press(key);
    await shows("traffic.cell", sum, "#waits .readout");
  };
  await cell(traffic.axes[0].matrix[0][1] + traffic.axes[1].matrix[0][1]);
  await browser.see(`(() => { const e = document.querySelector("#traffic select"); e.value = "dp"; e.dispatchEvent(new Event("change")); })()`);
  await cell(traffic.axes[0].matrix[0][1]);
  await focus("#tensors .heat");
  await browser.press("ArrowRight");
  await shows("held", 32000 * 768, "#tensors .readout");
});

await test("a step's timeline is read and zoomed, and samples are those of a step", async () => {
  await focus("#trace .timeline");
  for (const key of ["ArrowRight", "ArrowRight", "ArrowRight"]) await browser.press(key);
  assert.match(await text("#trace .readout"), /^Rank 0: F1 forward, micro-batch 1, 90\.0 ms from 200 ms on$/);
  await shows("timeline.lasted", 9e4 * 1e-6, "#trace");
  await browser.press("Enter");
  const asked = () => server.asked.filter((a) => a.startsWith("/api/trace") && a.includes("from_us=188750&to_us=301250")).length;
  for (let i = 0; i < 40 && asked() === 0; ++i) await new Promise((done) => setTimeout(done, 50));
  assert.equal(asked(), 1);
  assert.equal(await browser.see("document.querySelector('#trace .timeline').dataset.from"), "188750");
  await browser.press("0");
  assert.equal(await browser.see("document.querySelector('#trace .timeline').dataset.to"), "1800000");
  assert.equal(await text("#samples .samples p"), "Once upon a time <b>there");
  await browser.see(`(() => { const e = document.querySelector("#samples select"); e.value = "600"; e.dispatchEvent(new Event("change")); })()`);
  assert.equal(await text("#samples .samples p"), "Once upon a the the");
});

await test("tensors are found by name and by rank", async () => {
  const type = (label, value) => browser.see(`(() => { const e = document.querySelector('[aria-label="${label}"]'); e.value = ${quoted(value)}; e.dispatchEvent(new Event("input")); })()`);
  const in_codes = () => browser.see("[...document.querySelectorAll('#tensors tbody tr')].find((r) => r.cells[0].textContent === 'layers.5.down')?.textContent");
  assert.equal(await in_codes(), "layers.5.down768 × 2048codesnot knownShard(1) on tpnot known on ranks 0–3");
  await type("Filter of tensors", "layers.1.q");
  await shows("tensors.found", 1, "#tensors");
  await type("Filter of tensors", "");
  await type("Only what this rank holds", "3");
  await shows("tensors.bytes", runs[0].plan().tensors.reduce((s, t) => s + t.held[0].bytes, 0), "#tensors");
  assert.ok(await in_codes(), "a rank's tensor whose size is not known is left out");
  assert.match(await text("#tensors .filters + p"), / on rank 3 and 1 whose size is not known/);
});

await test("curves are zoomed by dragging, and a reload shows the same", async () => {
  await browser.see("document.querySelector('#learning .plot').scrollIntoView({ block: 'center', behavior: 'instant' })");
  const box = await browser.see("(({ x, y, width, height }) => ({ x, y, width, height }))(document.querySelector('#learning .plot').getBoundingClientRect())");
  await browser.drag(box.x + box.width * 0.5, box.x + box.width * 0.7, box.y + box.height / 2);
  await browser.wait_for("location.hash.includes('from=')");
  const [, from, to] = (await browser.see("location.hash")).match(/from=(\d+)&to=(\d+)/).map(Number);
  assert.ok(from > 350 && from < 650 && to > from + 150 && to < from + 450, `${from} to ${to}`);
  await browser.wait_for(`document.querySelector('#learning [data-key=loss]').dataset.step === '${to}'`);
  assert.ok(server.asked.some((a) => a.includes(`from=${from}&to=${to}`)));
  await shows("loss", runs[0].record(to).loss, "#learning");
  await browser.send("Page.reload");
  await browser.wait_for(`document.querySelector('#learning [data-key=loss]')?.dataset.step === '${to}'`);
  await focus("#learning .plot");
  await browser.press("Home");
  await shows("grad_norm", runs[0].record(from).grad_norm, "#learning");
  await browser.press("0");
  await browser.press("Escape");
  await browser.wait_for("document.querySelector('#learning [data-key=loss]').dataset.step === '1240' && location.hash === ''");
});

await test("a step that is done is seen without a reload", async () => {
  runs[0].go_on();
  server.tell();
  await browser.wait_for("document.querySelector('#progress [data-key=step]').dataset.value === '1241' && document.querySelector('#learning [data-key=loss]').dataset.step === '1241'");
  await shows("loss", runs[0].record().loss, "#learning");
  await browser.wait_for(`document.querySelector('#progress [data-key=loss]').dataset.value === '${runs[0].record().loss}'`);
});

await test("a lost connection is told, and comes back by itself", async () => {
  server.drop();
  await browser.wait_for("!document.querySelector('.notice').hidden");
  runs[0].go_on();
  await browser.wait_for("document.querySelector('.notice').hidden && document.querySelector('#learning [data-key=loss]').dataset.step === '1242'");
});

await test("where a run went back, what it had beyond is gone", async () => {
  runs[0].go_back(1100);
  runs[0].offset = 0.5;
  server.tell();
  await browser.wait_for("document.querySelector('#learning [data-key=loss]').dataset.step === '1100'");
  await shows("loss", runs[0].record(1100).loss, "#learning");
  assert.equal(await count("#events [data-key='evaluation.1200']"), 0);
});

await test("a server that was started anew, and numbers runs in another way, leaves the same run on the page", async () => {
  const began_anew = (order) => {
    runs.splice(0, runs.length, ...order.map((r) => runs[r]));
    runs.forEach((run, i) => Object.assign(run, { run: i, generation: run.generation + 1e6 }));
    server.drop();
  };
  const first = runs[0];
  first.offset = 0.7;  // records under the same steps, with other numbers
  for (const order of [[1, 2, 0, 3, 4], [2, 0, 1, 3, 4]]) {
    began_anew(order);
    await browser.wait_for(`document.querySelector('#learning [data-key=loss]')?.dataset.value === '${first.record().loss}' && document.querySelector('#learning [data-key=loss]').dataset.run === '${first.run}'`, 20);
    assert.equal(await text("h1"), "first");
    await shows("step", 1100, "#progress");
  }
});

await test("a map that grows is asked for now and then, and one that was not there again", async () => {
  const maps = () => server.asked.filter((a) => a.startsWith("/api/heat") && a.includes("of=grad_norm")).length, later = (ms) => browser.see(`(() => { const now = Date.now; Date.now = () => now() + ${ms}; })()`);
  await open();
  const seen = async (step) => { server.tell(); await browser.wait_for(`document.querySelector('#learning [data-key=loss]')?.dataset.step === '${step}'`, 20); };
  await seen(runs[0].step);
  await browser.wait_for("!document.getElementById('gradients').hidden", 20);
  const before = maps();
  for (let i = 0; i < 3; ++i) { runs[0].go_on(); await seen(runs[0].step); }
  assert.equal(maps(), before);
  await later(10000);
  runs[0].go_on();
  await seen(runs[0].step);
  await browser.wait_for(`document.querySelector('#gradients .axis').textContent.endsWith('step 1\u2009104')`, 20);
  assert.equal(maps(), before + 1);
  await open("?run=1a2b3c4d5e");
  await browser.wait_for("document.querySelector('#learning [data-key=loss]')?.dataset.step === '3000'", 20);
  await new Promise((done) => setTimeout(done, 500));
  const none = maps();
  runs[1].grad_norms = true;
  await later(30000);
  server.tell();
  await browser.wait_for("!document.getElementById('gradients').hidden", 20);
  assert.equal(maps(), none + 1);
  runs[1].grad_norms = undefined;
});

await test("what cannot be shown is said by its panel, and the others go on", async () => {
  const whole = runs[1].details();
  runs[1].details = () => ({ ...whole, latest: { ...whole.latest, expert_load: [["a"], [1, null]], memory_bytes: "much" }, held_out: { step: 1, loss: "low" }, memory: { used_bytes: "much" }, tasks: [null] });
  await open("?run=1a2b3c4d5e");
  await shows("step", 3000, "#progress");
  assert.match(await text("#learning"), /This cannot be shown/);
  assert.equal(await visible("experts"), true);
  assert.equal(await browser.see("document.querySelector('#experts .heat').dataset.rows"), "1");
  await shows("speed.mfu", 0.43, "#speed");
  delete runs[1].details;
});

await test("what files name is text, whatever it looks like; a failure is told and marked", async () => {
  await open("?run=2b3c4d5e6f", { dark: true });
  assert.equal(await text("h1"), "<script>alert(1)</script>");
  assert.equal(await count("script"), 1);
  assert.equal(await text("#progress .state"), "✕ failed");
  assert.match(await text("#progress .reason"), /not finite on rank 2/);
  assert.equal(await count("#events [data-event=spike].bad"), 1);
  assert.equal(await count("#events [data-event='large update'].bad"), 1);
  assert.match(await text("#events"), /the update changed layers\.3\.down by 0\.4 of its norm, above 0\.1 – tensor layers\.3\.down, update ratio 0\.400/);
  assert.equal(await count("#events [data-event=ended].bad"), 2);
  assert.match(await text("#trace .why"), /No trace: .*train\.trace_interval/);
  assert.match(await text("#speed"), /Rank 3 is slower .* since step 430/);
  await shows("grad_norm", "", "#learning");
});

await test("runs are drawn over each other", async () => {
  await open("?run=1a2b3c4d5e");
  await browser.see("document.querySelector('.runs [aria-label=\"Draw the curves of <script>alert(1)</script>\"]').click()");
  await browser.wait_for("document.querySelectorAll('#learning [data-key=loss]').length === 2");
  const losses = await browser.see("[...document.querySelectorAll('#learning [data-key=loss]')].map((e) => [e.dataset.run, e.dataset.value])");
  assert.deepEqual(losses, [[1, runs[1]], [2, runs[2]]].map(([r, run]) => [String(r), String(run.record().loss)]));
  assert.match(await browser.see("location.search"), /run=1a2b3c4d5e&with=2b3c4d5e6f/);
});

await test("a million steps on 256 ranks are few points, and every rank has a place", async () => {
  await open("?run=3c4d5e6f70");
  await browser.wait_for("!document.getElementById('tensors').hidden");
  assert.ok(await browser.see("Math.max(...[...document.querySelectorAll('[data-points]')].map((e) => Number(e.dataset.points))) <= 4000"));
  await shows("step", 1000000, "#progress");
  assert.equal(await count("#memory .stack"), 4);
  assert.equal(await browser.see("document.querySelector('#tensors .heat').dataset.columns"), "256");
  await focus("#experts .heat");
  for (const key of ["ArrowRight", "ArrowDown", "ArrowRight"]) await browser.press(key);
  await shows("expert_load", runs[3].record().expert_load[1][1], "#experts .readout");
});

await test("a run without records leaves panels out, and says what it cannot read", async () => {
  await open("?run=4d5e6f7081");
  for (const id of ["learning", "speed", "experts", "gradients", "weights", "others", "recipe"]) assert.equal(await visible(id), false, id);
  assert.match(await text("#progress .problems"), /metrics.jsonl cannot be read/);
  await browser.wait_for("/model.path is not here/.test(document.getElementById('tensors').textContent)");
});

await test("a phone of 360 pixels shows it without scrolling sideways", async () => {
  for (const dark of [false, true]) {
    await open("", { width: 360, height: 780, scale: 2, dark });
    assert.ok(await browser.see("document.documentElement.scrollWidth") <= 360);
    assert.ok(await browser.see("document.querySelector('#learning .plot canvas').clientWidth") > 250);
  }
});

// WCAG 2: relative luminance, contrast.
const contrasts = `(() => {
  const style = getComputedStyle(document.documentElement), parse = (c) => (c.length === 4 ? [...c.slice(1)].map((d) => d + d) : c.slice(1).match(/../g)).map((x) => parseInt(x, 16) / 255);
  const light = (name) => { const [r, g, b] = parse(style.getPropertyValue("--" + name).trim()).map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const of = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  return [["ink", 4.5], ["soft", 4.5], ["accent", 4.5], ["good", 4.5], ["bad", 4.5], ["field", 3], ...[1, 2, 3, 4, 5, 6].map((i) => ["line-" + i, 4.5])]
    .flatMap(([name, least]) => ["card", "ground"].filter((ground) => of(name, ground) < least).map((ground) => name + " on " + ground + ": " + of(name, ground).toFixed(2)));
})()`;
await test("colours have contrast, headings and controls have names", async () => {
  for (const dark of [false, true]) {
    await open("", { dark });
    assert.deepEqual(await browser.see(contrasts), []);
  }
  assert.equal(await count("h1"), 1);
  assert.deepEqual(await browser.see("[...document.querySelectorAll('section[aria-labelledby]')].filter((s) => !s.querySelector('h2')?.textContent).length"), 0);
  assert.deepEqual(await browser.see("[...document.querySelectorAll('input')].filter((e) => !e.ariaLabel && !e.labels.length).map((e) => e.outerHTML)"), []);
  assert.deepEqual(await browser.see("[...document.querySelectorAll('canvas')].filter((e) => !e.ariaLabel && !e.ariaHidden).length"), 0);
});

await test("nothing broke, and nothing was loaded or styled against the content security policy", async () => {
  const lost = /ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION/;  // of the connection that was dropped above
  assert.deepEqual(browser.complaints().filter((c) => !lost.test(c)), []);
});

if (pictures) {
  mkdirSync(pictures, { recursive: true });
  const fresh = made_up_runs();
  runs.forEach((run, i) => Object.assign(run, fresh[i]));
  const views = { running: ["", { width: 1200 }], finished: ["?run=1a2b3c4d5e&with=0f1e2d3c4b#smooth=0.9&y=log", { width: 1200 }], failed: ["?run=2b3c4d5e6f", { width: 1200, dark: true }], phone: ["", { width: 360, height: 780, scale: 2 }] };
  for (const [name, [query, options]] of Object.entries(views)) {
    await open(query, options);
    await browser.wait_for("!document.getElementById('tensors').hidden && !document.getElementById('machine').hidden");
    await browser.see("new Promise((done) => setTimeout(done, 500))");
    writeFileSync(join(pictures, `${name}.png`), await browser.picture(0, name === "phone" ? 1400 : 1250));
  }
}

await browser.close();
server.close();
console.log(failed === 0 ? "all passed" : `${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
