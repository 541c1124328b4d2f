#!/usr/bin/env python3
"""Writes a Hugging Face folder of a Llama's shape with random weights in f16, a shard for each four blocks.

    python3 bench/random_model.py bench/models/llama-2-7b/config.json FOLDER

For runs that must read a model of a real size where none is at hand. Absolute values lie between 1/128 and 1/64, so that no
block of codes is empty; the same 32 MiB of noise are used again from other places, for speed.
"""
import json, os, struct, sys, zlib

NOISE_BYTES = 32 << 20


def make_noise():
    bits = bytearray(os.urandom(NOISE_BYTES))
    bits[1::2] = bytes(0x20 | (high & 0x83) for high in bits[1::2])  # sign, exponent of 2^-7, two bits of the mantissa
    return bits * 2


def list_tensors(c):
    d, f, heads = c["hidden_size"], c["intermediate_size"], c["head_dim"] * c["num_attention_heads"]
    narrow = c["head_dim"] * c["num_key_value_heads"]
    block = {"self_attn.q_proj": (heads, d), "self_attn.k_proj": (narrow, d), "self_attn.v_proj": (narrow, d),
             "self_attn.o_proj": (d, heads), "mlp.gate_proj": (f, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f),
             "input_layernorm": (d,), "post_attention_layernorm": (d,)}
    yield "model.embed_tokens.weight", (c["vocab_size"], d), 0
    for i in range(c["num_hidden_layers"]):
        for name, shape in block.items(): yield f"model.layers.{i}.{name}.weight", shape, 1 + i // 4
    yield "model.norm.weight", (d,), 0
    if not c["tie_word_embeddings"]: yield "lm_head.weight", (c["vocab_size"], d), 0


def size_of(shape):
    size = 2
    for n in shape: size *= n
    return size


def write_shard(path, tensors, noise):
    header, at = {}, 0
    for name, shape in tensors:
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size_of(shape)]}
        at += size_of(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            left, begin = size_of(shape), 2 * (zlib.crc32(name.encode()) % (NOISE_BYTES // 2))
            if len(shape) == 1:  # a norm's weights: ones
                out.write(struct.pack("<H", 0x3C00) * shape[0])
                continue
            while left:
                n = min(left, NOISE_BYTES)
                out.write(memoryview(noise)[begin:begin + n])
                left -= n


def main():
    if len(sys.argv) != 3: sys.exit(__doc__)
    config, folder = json.load(open(sys.argv[1])), sys.argv[2]
    os.makedirs(folder)
    shards = {}
    for name, shape, shard in list_tensors(config): shards.setdefault(shard, []).append((name, shape))
    noise, where = make_noise(), {}
    for shard, tensors in sorted(shards.items()):
        file = f"model-{shard + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(os.path.join(folder, file), tensors, noise)
        where.update({name: file for name, _ in tensors})
        print(f"{file}: {len(tensors)} tensors", flush=True)
    total = sum(size_of(shape) for tensors in shards.values() for _, shape in tensors)
    json.dump({"metadata": {"total_size": total}, "weight_map": where}, open(os.path.join(folder, "model.safetensors.index.json"), "w"))
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))


main()
