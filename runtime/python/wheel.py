"""Writes a wheel of the package graphc: the Python files beside this one, both libraries and the program.

    wheel.py VERSION LIBRARY_FOLDER PROGRAM OUTPUT_FOLDER      prints the wheel's path

The same inputs give the same bytes. `cmake --build --preset release --target wheel` calls it; LLVM has to be on the machine
where such a wheel compiles models. With the preset `static` it is inside.
"""

import base64
import hashlib
import os
import stat
import sys
import zipfile

METADATA = """Metadata-Version: 2.1
Name: graphc
Version: {version}
Summary: Compiles ONNX graphs into plans of fused kernels, and runs them on CPUs and NVIDIA GPUs
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy>=1.22
Description-Content-Type: text/markdown

"""
WHEEL = """Wheel-Version: 1.0
Generator: graphc
Root-Is-Purelib: false
Tag: py3-none-linux_x86_64
"""
ENTRIES = "[console_scripts]\ngraphc = graphc._tools:main\n"


def contents(version, libraries, program):
    """Paths in the wheel, their bytes, and whether they are programs."""
    here = os.path.dirname(os.path.abspath(__file__))
    read = lambda *path: open(os.path.join(*path), "rb").read()
    for name in sorted(os.listdir(f"{here}/graphc")):
        if name.endswith(".py") or name == "py.typed":
            yield f"graphc/{name}", read(here, "graphc", name), False
    for name in ("libgraphc.so.0", "libgraphc_compile.so.0"):
        yield f"graphc/lib/{name}", read(libraries, name), False
    yield "graphc/bin/graphc", read(program), True
    info = f"graphc-{version}.dist-info"
    yield f"{info}/METADATA", METADATA.format(version=version).encode() + read(here, "README.md"), False
    yield f"{info}/WHEEL", WHEEL.encode(), False
    yield f"{info}/entry_points.txt", ENTRIES.encode(), False


def main(version, libraries, program, out):
    record, info = [], f"graphc-{version}.dist-info"
    path = os.path.join(out, f"graphc-{version}-py3-none-linux_x86_64.whl")
    with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:

        def put(name, data, executable=False):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            wheel.writestr(entry, data)

        for name, data, executable in contents(version, libraries, program):
            put(name, data, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
        put(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]).encode())
    os.replace(path + ".part", path)
    print(path)


main(*sys.argv[1:])
