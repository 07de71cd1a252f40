"""Decoding on the CPU beside onnxruntime, taking turns in one run: tokens a second of a model with a cache of keys and values.

    decode.py GRAPHC FOLDER [NAME[:bf16]...] [--threads 2] [--rounds 3] [--past 512] [--prompt 512]

NAME.onnx lies in FOLDER, its quantised forms as quantise.py names them; `:bf16` is graphc's --precision bf16, beside
onnxruntime in f32, which is all that it has there. Prefill: --prompt tokens behind none, logits for all of them. Step: one token behind --past.
Both sides read and write the cache as the model does, a new one each time. Rounds, pauses and medians are those of
cpu.py. Weights are what graphc reads of them in a step, as it keeps them; beside their pace the one at which as many
threads find the largest number of as many bytes at the end. The last column is the first model's step beside each.
"""
import argparse, concurrent.futures, json, os, statistics, subprocess, sys, tempfile, time
import numpy as np

import cpu
from cpu import cases

NAMES = ["llama_small_kv:bf16", "llama_small_kv", "llama_small_kv_4bit0", "llama_small_kv_4bit4"]
SIDES = ["graphc", "onnxruntime"]


def weights(graphc, plan):
    p = subprocess.run([graphc, "inspect", plan, "--json"], check=True, capture_output=True, text=True)
    return json.loads(p.stdout)["memory"]["prepared"]


def read_pace(size, threads):
    """GB/s"""
    parts = np.array_split(np.ones(size // 4, np.float32), threads)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return size / cpu.times(lambda: list(pool.map(np.max, parts))) / 1e6


def runs(a, name, plan, sizes):
    """side -> what takes its time in ms, at these sizes"""
    path = f"{a.folder}/{name}.onnx"
    feeds, files = cases.inputs(path, sizes), {}
    for k, v in feeds.items():
        files[k] = f"{plan}.{sizes['seq']}.{k}.npy"
        np.save(files[k], v)
    peer = cpu.onnxruntime_peer(path, feeds, a.threads)
    return {"graphc": lambda: cpu.graphc_ms(a, plan, files), "onnxruntime": lambda: cpu.times(peer)}


def all_runs(a, plans, sizes):
    """(spec, side) -> median ms: every run in turn, in each round"""
    run = {}
    for spec, plan in plans.items():
        run |= {(spec, k): fn for k, fn in runs(a, spec.partition(":")[0], plan, sizes).items()}
    got = {k: [] for k in run}
    for i in range(a.rounds):
        for k in cpu.turn(list(run), i):
            got[k].append(run[k]())
            time.sleep(cpu.PAUSE_S)
    return {k: statistics.median(v) for k, v in got.items()}


def compiled(a, spec, tmp):
    name, _, precision = spec.partition(":")
    plan = f"{tmp}/{name}.{precision or 'f32'}"
    subprocess.run([a.graphc, f"{a.folder}/{name}.onnx", "--precision", precision or "f32", "-o", plan], check=True,
                   capture_output=True)
    return plan


def row(a, spec, first, plan, prefill, step):
    mine, size, cells = step[spec, "graphc"], weights(a.graphc, plan), [spec]
    for tokens, ms in (a.prompt, prefill), (1, step):
        cells += [f"{tokens * 1e3 / ms[spec, k]:,.0f}" for k in SIDES]
        cells.append(f"{ms[spec, 'onnxruntime'] / ms[spec, 'graphc']:.2f}")
    cells += [f"{size / 1e6:.0f}", f"{size / mine / 1e6:.1f}", f"{read_pace(size, a.threads):.1f}"]
    return f"| {' | '.join(cells)} | {step[first, 'graphc'] / mine:.2f} |"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("folder"), p.add_argument("names", nargs="*")
    p.add_argument("--threads", type=int, default=2), p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--past", type=int, default=512), p.add_argument("--prompt", type=int, default=512)
    a = p.parse_intermixed_args()
    # What cpu.py's parts ask for besides.
    a.isa, a.precision, a.no_openvino, a.dim = None, "f32 and bf16", True, [f"seq={a.prompt}"]
    print(f"{cpu.machine(a)}, past {a.past}\n\n| model | prefill: graphc tokens/s | onnxruntime | ratio | step: graphc "
          "tokens/s | onnxruntime | ratio | weights MB | GB/s | a read, GB/s | x first |", flush=True)
    print("|---" * 11 + "|")
    with tempfile.TemporaryDirectory() as tmp:
        names = a.names or NAMES
        plans = {spec: compiled(a, spec, tmp) for spec in names}
        prefill = all_runs(a, plans, {"batch": 1, "past": 0, "seq": a.prompt})
        step = all_runs(a, plans, {"batch": 1, "past": a.past, "seq": 1})
        for spec in names:
            print(row(a, spec, names[0], plans[spec], prefill, step), flush=True)


if __name__ == "__main__":
    main()
