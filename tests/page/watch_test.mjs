// `weft watch` on real runs in a headless Chromium: a small one that trains meanwhile, and one that is finished.
//   node tests/page/watch_test.mjs WEFT MODEL [RUN...]   WEFT: the program; MODEL: tests/golden/llama-gqa
// With runs' folders, which are only read, nothing is trained, and of each it is looked whether its last record is shown.
// Ends with status 77, and says why, where there is no Chromium, or a build without the page.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Browser, find_chromium } from "./browser.mjs";

const [weft, model, ...given] = process.argv.slice(2), program = find_chromium();
const skip = (why) => {
  console.log(`skipped: ${why}`);
  process.exit(77);
};
if (!program) skip("there is no chromium here (Debian's package chromium; or WEFT_CHROMIUM names one)");
if (!weft || !existsSync(weft)) skip(`there is no program ${weft}`);

const home = mkdtempSync(join(tmpdir(), "weft-watch-")), children = new Set();
let browser = null;
process.on("exit", () => {
  children.forEach((child) => child.kill("SIGKILL"));
  rmSync(home, { recursive: true, force: true, maxRetries: 5 });
});
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// The program as a child, with what it has said so far.
function start(...args) {
  const child = spawn(weft, args, { stdio: ["ignore", "pipe", "pipe"] });
  children.add(child);
  child.said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => { child.said += bytes; });
  child.ended = new Promise((done) => child.once("exit", (status) => { children.delete(child); done(status); }));
  return child;
}
async function until(what, is, child) {
  for (const end = Date.now() + 60000; Date.now() < end; await pause(20)) {
    if (is()) return;
    if (child.exitCode !== null) break;
  }
  throw new Error(`${what} did not come; the program said: ${child.said}`);
}

// `weft watch`, once it says where; { child, address, port }.
async function watch(folders, port = 0) {
  const child = start("watch", ...folders, "--port", String(port)), at = () => /http:\/\/127\.0\.0\.1:(\d+)\/?/.exec(child.said);
  while (!at()) {
    if (child.exitCode !== null) {
      if (/not in this build|was built without|cpp-httplib/.test(child.said)) skip(child.said.trim());
      throw new Error(`weft watch ended: ${child.said}`);
    }
    await pause(20);
  }
  return { child, address: `http://127.0.0.1:${at()[1]}/`, port: Number(at()[1]) };
}
async function end(child) {
  child.kill("SIGTERM");
  await child.ended;
}

const recipe = join(home, "r.toml");
writeFileSync(recipe, `
[model]
path = "${model}"
[data]
train = ["${join(model ?? "", "tokens.bin")}"]
[train]
seq_length = 8
global_batch_size = 2
micro_batch_size = 1
train_iters = 12
log_grad_norms = true
log_weight_norms = 4
[optimizer]
lr = 1e-3
lr_warmup_iters = 0
[checkpoint]
save_interval = 6
[run]
threads = 1
`);
const folder_of = (name) => join(home, name);
function records_of(folder) {
  const file = join(folder, "metrics.jsonl");
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);  // what follows the last line's end is being written
  return lines.map((l) => JSON.parse(l)).filter((r) => typeof r.loss === "number");
}

let failed = 0;
async function test(sentence, body) {
  const begin = Date.now(), error = await body().then(() => null, (e) => e);
  console.log(`${error ? "FAILED" : "passed"} ${sentence} (${Date.now() - begin} ms)`);
  if (error) console.log(error.stack);
  failed += error ? 1 : 0;
}
const quoted = JSON.stringify;
const exact = (key, within) => browser.see(`(document.querySelector(${quoted(`${within} [data-key=${quoted(key)}]`)}) ?? {}).dataset?.value ?? null`);
const text = (selector) => browser.see(`document.querySelector(${quoted(selector)})?.textContent ?? null`);
const shows = async (key, x, within) => assert.equal(await exact(key, within), String(x), `${within}: ${key}`);

// The page has the numbers of the folder's last record, and as many steps.
async function shows_last_record(folder) {
  const record = records_of(folder).at(-1);
  await browser.wait_for(`document.querySelector('#learning [data-key=loss]')?.dataset.step === '${record.step}' && document.querySelector('#progress [data-key=step]')?.dataset.value === '${record.step}'`, 30);
  for (const [key, within] of [["loss", "#progress"], ["loss", "#learning"], ["grad_norm", "#learning"], ["lr", "#learning"], ["tokens_per_s", "#speed"], ["step_time_s", "#speed"]]) {
    if (typeof record[key] === "number") await shows(key, record[key], within);
  }
  for (const axis of Object.keys(record.waits_s ?? {})) await shows(`waits_s.${axis}`, record.waits_s[axis], "#waits");
}
// Both maps of weights have a column for each line of the folder's file, and its numbers.
async function shows_weights(folder) {
  await browser.wait_for("!document.getElementById('weights').hidden", 60);
  const lines = readFileSync(join(folder, "weight_norms.jsonl"), "utf8").trim().split("\n").map((l) => JSON.parse(l));
  assert.deepEqual(lines.map((l) => l.step), [1, 4, 8, 12]);
  const names = Object.keys(lines[0].weight_norm).sort();
  for (const [of, key] of [["update_ratio", "update_ratios"], ["weight_norm", "weight_norms"]]) {
    const within = `#weights [data-map=${of}]`;
    assert.equal(await browser.see(`document.querySelector('${within} .heat').dataset.columns`), "4");
    await browser.see(`document.querySelector('${within} .heat').focus()`);
    for (const key of ["Home", "ArrowRight"]) await browser.press(key);
    await shows(key, lines[1][of][names[0]], `${within} .readout`);
    assert.ok((await text(`${within} .readout`)).startsWith(`${names[0]}, step 4: `));
  }
}
// The mean that the page tells is that of the records themselves.
async function shows_speed(folder) {
  const recent = records_of(folder).slice(-200), told = Number(await exact("speed.step_time_s", "#speed"));
  const mean = recent.reduce((sum, r) => sum + r.step_time_s, 0) / recent.length;
  assert.ok(Math.abs(told / mean - 1) < 1e-6, `a step takes ${told} s by the page and ${mean} s by its records`);
}

let server = null;
const begin = async (folders, port) => {
  server = await watch(folders, port);
  if (/was not built/.test(await (await fetch(server.address)).text())) skip("this build has no page: esbuild and node-chart.js were missing");
};
async function finish() {
  if (server) await end(server.child);
  if (browser) await browser.close();
  console.log(failed === 0 ? "all passed" : `${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}
const id_of = async (folder) => (await (await fetch(`${server.address}api/runs`)).json()).runs.find((r) => r.path === folder || r.path.endsWith(folder)).id;

if (given.length > 0) {
  await begin(given);
  browser = await Browser.start(program);
  for (const { path, id } of (await (await fetch(`${server.address}api/runs`)).json()).runs) {
    await test(`${path}: the page has its last record`, async () => {
      await browser.open(`${server.address}?run=${id}`);
      await shows_last_record(path);
    });
  }
  await finish();
}

const first = folder_of("first"), second = folder_of("second");
const trained = spawnSync(weft, ["train", recipe, `run.dir=${first}`], { encoding: "utf8" });
if (trained.status !== 0) throw new Error(`weft train: ${trained.stdout}${trained.stderr}`);
await begin([first]);
browser = await Browser.start(program);

await test("the page of a finished run has the numbers of its records", async () => {
  await browser.open(server.address);
  assert.equal(records_of(first).length, 12);
  await shows_last_record(first);
  await shows_speed(first);
  await shows("total", 12, "#progress");
  assert.equal(await text("#progress .state"), "✓ finished");
  assert.match(await text("#progress .about"), / · weft \d+\.\d+\.\d+$/);
  const used = records_of(first).at(-1).memory_bytes;
  if (used !== undefined) await shows("memory.used_bytes", used, "#memory");
  await browser.wait_for("!document.getElementById('gradients').hidden && !document.getElementById('tensors').hidden", 60);
  assert.equal(await browser.see("document.querySelector('#gradients .heat').dataset.columns"), "12");
  await shows_weights(first);
  await browser.wait_for("document.querySelectorAll('#events [data-key$=\".bytes\"]').length === 2", 30);
});

await test("steps that are done meanwhile are seen without a reload, to the last", async () => {
  await end(server.child);
  const training = start("train", recipe, `run.dir=${second}`, "train.train_iters=600", "checkpoint.save_interval=300");
  await until("the first record", () => records_of(second).length > 0, training);
  await begin([second, first], server.port);
  await browser.open(`${server.address}?run=${await id_of(second)}`);
  assert.equal(await training.ended, 0, training.said);
  assert.equal(records_of(second).at(-1).step, 600);
  await shows_last_record(second);
  await shows_speed(second);
  await browser.wait_for("document.querySelector('#progress .state').textContent === '✓ finished'", 30);
});

await test("a server that is started anew, with the runs in another order, leaves the same run on the page", async () => {
  await end(server.child);
  await browser.wait_for("!document.querySelector('.notice').hidden", 30);
  await begin([first, second], server.port);
  await browser.wait_for("document.querySelector('.notice').hidden && document.querySelector('#learning [data-key=loss]').dataset.run === '1'", 60);
  assert.equal(await text("h1"), "second");
  await shows_last_record(second);
});

await test("nothing broke", async () => {
  const cut_off = /ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION|ERR_EMPTY_RESPONSE|ERR_CONTENT_LENGTH_MISMATCH/;  // servers that ended
  assert.deepEqual(browser.complaints().filter((c) => !cut_off.test(c)), []);
});
await finish();
