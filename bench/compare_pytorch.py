#!/usr/bin/env python3
"""Times training steps of the shapes in bench/*.toml in PyTorch, beside `weft bench step` in the same run.

    python3 bench/compare_pytorch.py [--weft build/cpu/weft] [--threads 2] [--iters 3] [--precision f32] [--lora 16]
                                     [--pytorch "python3 bench/pytorch_step.py"] [--ways f32 f32+compile] [CASE ...]

A step is what bench/pytorch_step.py says; PyTorch takes each of WAYS, and the best counts: in f32 by itself and through
torch.compile, with --precision bf16 by autocast and with bf16 weights, each with torch.compile too. weft runs before and
after PyTorch, and the better counts. --lora RANK compares steps of an adapter on all matrices of the blocks (in weft q, k
and v have one each, in PyTorch one together), and weft's own full step stands beside. Flop/s of both are by weft's count.
--pytorch: the command that starts bench/pytorch_step.py, for a PyTorch in another place.
"""
import argparse, json, re, shlex, subprocess, sys


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cases", nargs="*", default=["gpt2-124m", "gpt2-30m", "llama-8x512"], metavar="CASE")
    p.add_argument("--weft", default="build/cpu/weft")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--iters", type=int, default=3)
    p.add_argument("--precision", default="f32", choices=["f32", "bf16"])
    p.add_argument("--lora", type=int, default=0, metavar="RANK")
    p.add_argument("--pytorch", default=f"{sys.executable} bench/pytorch_step.py")
    p.add_argument("--ways", nargs="*")
    o = p.parse_args()
    if not o.ways:
        plain = ["f32"] if o.precision == "f32" else ["autocast", "bf16"]
        o.ways = plain + [f"{way}+compile" for way in plain]
    return o


def read_case(name):
    text = open(f"bench/{name}.toml").read()
    number = lambda key: int(re.search(rf"^{key} = (\d+)", text, re.M).group(1))
    return json.load(open(f"bench/models/{name}/config.json")), number("global_batch_size"), number("seq_length")


def time_weft(name, o, adapter):
    settings = [f"run.threads={o.threads}", f"train.precision={o.precision}", f"--iters={o.iters}"]
    if adapter: settings += ["adapter.kind=lora", f"adapter.rank={adapter}", f"adapter.alpha={2 * adapter}"]
    text = subprocess.run([o.weft, "bench", "step", f"bench/{name}.toml", *settings], stdout=subprocess.PIPE, text=True, check=True).stdout
    whole = re.search(r"whole step\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+) tokens/s, ([\d.]+) GFLOP/s, (\d+) MiB", text)
    return {"s": float(whole.group(2)) / 1e3, "flops": float(whole.group(5)) * 1e9, "floor": float(whole.group(3)), "mib": int(whole.group(6))}


def time_pytorch(name, o, way):
    config, batch, seq = read_case(name)
    command = [*shlex.split(o.pytorch), json.dumps(config), str(batch), str(seq), str(o.threads), str(o.iters), way]
    if o.lora: command.append(str(o.lora))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0: return json.loads(done.stdout.splitlines()[-1])
    last = (done.stderr.strip().splitlines() or ["no word"])[-1]
    print(f"{name}: PyTorch did not run in the way {way}: {last}", file=sys.stderr)
    return None


def main():
    o = parse_arguments()
    full = f"{'full ms':>10}{'/ full':>8}" if o.lora else ""
    print(f"{'case':<14}{'weft ms':>10}{full}{'GFLOP/s':>10}{'/ floor':>9}{'MiB':>8}   {'torch ms':>10}{'GFLOP/s':>10}{'MiB':>8}  {'way':<18}{'ratio':>7}")
    for name in o.cases:
        before = time_weft(name, o, o.lora)
        whole = time_weft(name, o, 0) if o.lora else None
        ways = {way: run for way in o.ways if (run := time_pytorch(name, o, way))}
        if not ways: sys.exit("PyTorch did not run, see above")
        way = min(ways, key=lambda each: ways[each]["best_s"])
        weft, torch = min(before, time_weft(name, o, o.lora), key=lambda run: run["s"]), ways[way]
        beside = ""
        if o.lora:
            full_s = min(whole["s"], time_weft(name, o, 0)["s"])
            beside = f"{full_s * 1e3:>10.1f}{weft['s'] / full_s:>8.3f}"
        torch_flops = weft["flops"] * weft["s"] / torch["best_s"]
        print(f"{name:<14}{weft['s'] * 1e3:>10.1f}{beside}{weft['flops'] / 1e9:>10.1f}{weft['floor']:>9.3f}{weft['mib']:>8}   "
              f"{torch['best_s'] * 1e3:>10.1f}{torch_flops / 1e9:>10.1f}{torch['mib']:>8.0f}  {way:<18}{torch['best_s'] / weft['s']:>7.2f}", flush=True)
        print("              " + ", ".join(f"{each} {run['best_s'] * 1e3:.0f} ms" for each, run in ways.items()))
    print(f"PyTorch {torch['version']}, {o.threads} threads, {o.precision}; ratio: weft's tokens/s over PyTorch's")


if __name__ == "__main__":
    main()
