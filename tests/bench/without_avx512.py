"""Peers held to AVX2: copies of onnxruntime and OpenVINO that find no AVX-512 when they ask the processor.

    without_avx512.py FOLDER        makes the copies; needs objdump and a C compiler
    PYTHONPATH=FOLDER LD_PRELOAD=FOLDER/cpuid.so cpu.py GRAPHC MODELS --isa 3

Neither library has an option that holds all of its kernels to an instruction set. In the copies each CPUID instruction is
UD2, as long; the handler of SIGILL in cpuid.so (without_avx512.c) answers in its place.
"""
import glob, importlib.util, os, re, shutil, subprocess, sys

CPUID, UD2 = b"\x0f\xa2", b"\x0f\x0b"
here = os.path.dirname(os.path.abspath(__file__))


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def sections(path):
    """Address, place in the file and size of each."""
    fields = [line.split() for line in lines("objdump", "-h", path) if re.match(r"\s*\d+ \.", line)]
    return [(int(f[3], 16), int(f[5], 16), int(f[2], 16)) for f in fields]


def replace(path):
    with open(path, "rb") as f:
        code = bytearray(f.read())
    places, found = sections(path), 0
    for line in lines("objdump", "-d", path):
        m = re.match(r"\s*([0-9a-f]+):\s+0f a2\s+cpuid", line)
        at = int(m[1], 16) if m else 0
        for address, place, size in places if m else []:
            if address <= at < address + size:
                start = at - address + place
                assert code[start:start + 2] == CPUID
                code[start:start + 2], found = UD2, found + 1
    with open(path, "wb") as f:
        f.write(code)
    print(f"{os.path.basename(path)}: {found}")


def main():
    folder = os.path.abspath(sys.argv[1])
    os.makedirs(folder, exist_ok=True)
    for name, libraries in (("onnxruntime", "capi/*.so*"), ("openvino", "libs/libopenvino*cpu*.so"), ("openvino", "libs/libopenvino.so*")):
        to = os.path.join(folder, name)
        if not os.path.exists(to):
            shutil.copytree(os.path.dirname(importlib.util.find_spec(name).origin), to)
        for path in sorted(glob.glob(os.path.join(to, libraries))):
            replace(path)
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", os.path.join(here, "without_avx512.c"), "-o", os.path.join(folder, "cpuid.so")], check=True)


if __name__ == "__main__":
    main()
