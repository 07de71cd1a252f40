"""Same model: same plan bytes in another folder, with other thread counts; same plan and input: same
output bits with other thread counts."""
import filecmp, os, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build

graphc = sys.argv[1]
call = lambda *a: subprocess.run([graphc, *a], check=True, capture_output=True, timeout=60)
with tempfile.TemporaryDirectory() as d:
    plans, outputs = [], []
    for i, threads in enumerate(("1", "2", "2")):
        os.makedirs(f"{d}/{i}/folder")
        build.mlp(f"{d}/{i}/folder/m.onnx")
        plans.append(f"{d}/{i}/m.plan")
        call(f"{d}/{i}/folder/m.onnx", "-o", plans[-1], "--threads", threads)
        outputs.append(f"{d}/{i}/out")
        call("run", plans[0], "--dim", "batch=77", "--threads", threads, "--output-dir", outputs[-1])
    ok = all(filecmp.cmp(plans[0], p, shallow=False) for p in plans[1:])
    same = all(filecmp.cmp(f"{outputs[0]}/y.npy", f"{o}/y.npy", shallow=False) for o in outputs[1:])
print("plans equal" if ok else "PLANS DIFFER", "outputs equal" if same else "OUTPUTS DIFFER")
sys.exit(not (ok and same))
