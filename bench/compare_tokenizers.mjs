// MB/s of independent tokenizers on a file, best of 3, one thread:
//   node bench/compare_tokenizers.mjs PACKAGES FILE RANKS TOKENIZER_JSON
// PACKAGES: a folder, outside of the checkout, into which tiktoken and @huggingface/tokenizers were installed by npm.
// RANKS: Llama 3's file of ranks. TOKENIZER_JSON: Qwen2.5's. Both programs get texts of 100,000 characters: they are not
// made for one of megabytes.
import fs from 'node:fs';
import {createRequire} from 'node:module';

const [, , packages, file, ranks, json] = process.argv;
const require = createRequire(packages + '/');
const text = fs.readFileSync(file, 'utf8');
const megabytes = fs.statSync(file).size / 1e6;
const parts = text.match(/[\s\S]{1,100000}/g);

function report(name, countIds) {
  let best = Infinity, ids = 0;
  for (let pass = 0; pass < 3; ++pass) {
    const begin = performance.now();
    ids = parts.reduce((sum, part) => sum + countIds(part), 0);
    best = Math.min(best, performance.now() - begin);
  }
  console.log(`${name}: ${(megabytes / best * 1e3).toFixed(2)} MB/s, ${ids} ids`);
}

const {Tiktoken} = require('tiktoken/lite');
const gpt2 = require('tiktoken/encoders/gpt2.json');
const llama3 = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
const lines = fs.readFileSync(ranks, 'utf8').trim().split('\n').map((line) => line.split(' ')[0]);
for (const [name, encoder] of [
       ['tiktoken, GPT-2', new Tiktoken(gpt2.bpe_ranks, gpt2.special_tokens, gpt2.pat_str)],
       ['tiktoken, Llama 3', new Tiktoken('! 0 ' + lines.join(' '), {}, llama3)]])
  report(name, (part) => encoder.encode(part, [], []).length);
const {Tokenizer} = require('@huggingface/tokenizers');
const qwen = new Tokenizer(JSON.parse(fs.readFileSync(json, 'utf8')), {});
report('@huggingface/tokenizers, Qwen2.5', (part) => qwen.encode(part, {add_special_tokens: false}).ids.length);
