"""Where fuzzers of one format start: small valid files.

    seeds.py GRAPHC FORMAT FOLDER     FORMAT: one of FORMATS
"""
import glob, os, shutil, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models

FORMATS = ["onnx", "gir", "kir", "plan", "tensor", "safetensors", "adapter", "data", "checkpoint", "log", "options"]


def write_seeds(graphc, format, folder):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as d:
        if format in ("adapter", "data", "checkpoint", "log", "options"):
            for i, bytes in enumerate(models.write_training(d)[format]):
                open(f"{folder}/{i}", "wb").write(bytes)
            return
        if format in ("tensor", "safetensors"):
            ends = (".npy", ".npz", ".pb", ".safetensors") if format == "tensor" else (".safetensors",)
            found = [p for p in models.write_tensors(d) if p.endswith(ends)]
        else:
            found = models.write(d)
        if format == "plan":
            found = [p[:-5] + ".plan" for p in found]
            for p in found:
                subprocess.run([graphc, p[:-5] + ".onnx", "-o", p], check=True, stdout=subprocess.DEVNULL)
        if format in ("gir", "kir"):
            texts = []
            for p in found:
                subprocess.run([graphc, p, "-o", p + ".plan", "--dump-ir", p + ".d"], check=True, stdout=subprocess.DEVNULL)
                texts += glob.glob(p + ".d/*." + format)
            found = texts
        for i, p in enumerate(found):
            if format != "kir":
                shutil.copy(p, f"{folder}/{i}")
                continue
            kernels = open(p).read().split("\nkernel ")[1:]  # a file of them; the target reads one
            for k, text in enumerate(kernels):
                open(f"{folder}/{i}.{k}", "w").write("kernel " + text.split("\nend\n")[0] + "\nend\n")
        if format == "gir":
            for p in glob.glob(root + "/gir/**/*.gir", recursive=True):
                shutil.copy(p, folder)


if __name__ == "__main__":
    write_seeds(*sys.argv[1:])
