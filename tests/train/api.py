"""The training API (graphc_train.h): models/finetune.c against the command line, and tests/train/api_tool.c.

    api.py GRAPHC FINETUNE API_TOOL [MODEL.onnx]      MODEL: also a real one
"""
import json, os, subprocess, sys, tempfile
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import small
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks
from tool import check, failed

graphc, finetune, tool = map(os.path.abspath, sys.argv[1:4])
TEXT = "the quick brown fox jumps over the lazy dog. " * 60


def call(*args, status=0):
    p = forks.run(args)
    check(p.returncode == status, f"{args}: {p.returncode}, not {status}: {p.stderr[-400:]}")
    return p.stdout if not status else p.stderr


def same_as_command_line(model, steps):
    """A program of a hundred lines and `graphc finetune`: the same losses, the same adapter."""
    said = call(finetune, model, "by_c", steps, "t.txt")
    lines = [json.loads(l) for l in call(graphc, "finetune", model, "--loss", "cross_entropy(logits, labels)", "--lora",
             "r=8,targets=all-linear", "--data", "t.txt", "--batch", 2, "--seq", 64, "--lr", "1e-3", "--steps", steps, "-o", "by_cli",
             "--json").splitlines()]
    check([f"step {l['step']}  loss {l['loss']:.6f}  |g| {l['grad_norm']:.4f}" for l in lines] == said.splitlines(), "losses")
    check(lines[-1]["loss"] < lines[0]["loss"], f"the loss does not fall: {lines[0]['loss']}, {lines[-1]['loss']}")
    for f in ("adapter_model.safetensors", "adapter_config.json"):
        check(open(f"by_c/{f}", "rb").read() == open(f"by_cli/{f}", "rb").read(), f"{f} of C and of the command line")
    check("usage" in call(finetune, model, "none", "many", "t.txt", status=1), "steps that are no number")
    with open("bad.onnx", "w") as f:
        f.write("x")
    check("bad.onnx: invalid file" in call(finetune, "bad.onnx", "none", 1, "t.txt", status=1), "a model that is none")


def parts():
    """Checkpoints, parameters, gradients, adapters by name: api_tool says what does not hold."""
    loss = ["--loss", "cross_entropy(logits, labels)", "--batch", 2, "--seq", 32, "--plan-only"]
    call(graphc, "finetune", "att.onnx", *loss, "--lora", "r=4,targets=all-linear", "--accumulate", 2, "-o", "lora.plan")
    call(graphc, "train", "att.onnx", *loss, "-o", "whole.plan")
    call(tool, "lora.plan", "whole.plan", "t.txt", "work")


with tempfile.TemporaryDirectory() as tmp:
    os.chdir(tmp)
    open("t.txt", "w").write(TEXT)
    small.attention_model("att.onnx")
    same_as_command_line("att.onnx", 12)
    parts()
    if len(sys.argv) > 4 and os.path.exists(sys.argv[4]):
        same_as_command_line(sys.argv[4], 4)
sys.exit(failed() > 0)
