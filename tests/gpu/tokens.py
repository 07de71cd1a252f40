"""Tokens from C (tokens.c), chosen on the host from a copy of the logits, on the host from memory that the GPU writes itself,
and by an ArgMax in the plan: the three have to be the same tokens.

    tokens.py GRAPHC TOKENS [--device cpu|cuda] [--model NAME] [--keys N] [--tokens N] [--plans DIR]

--plans DIR only writes DIR/logits.plan and DIR/token.plan, for a GPU elsewhere (its weights are models/fill.py's).
"""
import argparse, os, re, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import cases, onnx
from onnx import TensorProto, helper


def with_choice(path, out):
    """The model with one more output: the place of each row's greatest logit."""
    model = onnx.load(path, load_external_data=False)
    model.graph.node.append(helper.make_node("ArgMax", ["logits"], ["token"], axis=-1, keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("token", TensorProto.INT64, ["batch", "seq"]))
    onnx.save(model, out)
    return model


def compile_both(a, path, folder):
    """Plans of the model as it is and with the choice, their caches states with room for what is asked."""
    chooses = f"{os.path.dirname(path)}/{a.model}_token.onnx"
    names = [v.name for v in with_choice(path, chooses).graph.input]
    states = [x for n in names if n.startswith("past_key_values.")
              for x in ("--state", f"{n}={n.replace('past_key_values', 'present')}")]
    sizes = ["--dim", "batch=1", "--dim", "seq=1", "--dim", f"past=0..{a.keys + a.tokens + 64}"]
    for plan, model in ("logits", path), ("token", chooses):
        subprocess.run([a.graphc, model, "-o", f"{folder}/{plan}.plan", "--target", "cpu" if a.device == "cpu" else "sm_90a", *states, *sizes],
                       check=True, stdout=subprocess.DEVNULL)
    os.unlink(chooses)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("tokens_program"), p.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    p.add_argument("--model", default="llama_small_kv"), p.add_argument("--keys", type=int, default=100)
    p.add_argument("--tokens", type=int, default=24), p.add_argument("--plans")
    a = p.parse_args()
    path = f"{cases.filled([a.model])}/{a.model}.onnx"
    if a.plans:
        os.makedirs(a.plans, exist_ok=True)
        compile_both(a, path, a.plans)
        return 0
    said = []
    with tempfile.TemporaryDirectory() as folder:
        compile_both(a, path, folder)
        for choice in "host", "shared", "plan":
            plan = f"{folder}/{'token' if choice == 'plan' else 'logits'}.plan"
            r = subprocess.run([a.tokens_program, "--device", a.device, "--weights", os.path.dirname(path), "--choice", choice,
                                "--keys", str(a.keys), "--tokens", str(a.tokens), plan], stdout=subprocess.PIPE, text=True)
            if r.returncode:
                return r.returncode
            print(f"{choice:6} {r.stdout}", end="", flush=True)
            said.append(re.search(r"last token \d+, all \w+", r.stdout)[0])
    if len(set(said)) != 1:
        print("the choices differ", file=sys.stderr)
    return len(set(said)) != 1


if __name__ == "__main__":
    sys.exit(main())
