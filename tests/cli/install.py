"""What `cmake --install` puts down is enough for others: public headers alone as C and as C++, pkg-config, the
CMake package, the program, all from a prefix that has been moved.

    install.py BUILD_FOLDER SOURCE_FOLDER
    install.py --static SOURCE_FOLDER       configures, builds and tries the preset `static`
"""
import os, shutil, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build

failures = 0
WARN = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
HEADERS = {"graphc.h": "graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT; (void)o;",
           "graphc_train.h": "graphc_data_options o = GRAPHC_DATA_OPTIONS_INIT; (void)o;",
           "graphc_compile.h": "graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT; (void)o;",
           "graphc_status.h": ""}
USE = """#include <graphc.h>
#include <graphc_compile.h>
#include <stdio.h>
int main(int argc, char **argv) {
    graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT;
    graphc_compiled *c = NULL;
    graphc_plan *p = NULL;
    graphc_session *s = NULL;
    char why[256] = "";
    size_t size = 0;
    if (argc != 2 || graphc_compile(argv[1], &o, &c) != GRAPHC_OK) return 1;
    const void *plan = graphc_compiled_plan(c, &size);
    if (graphc_plan_load_memory(plan, size, NULL, &p, why, sizeof why) != GRAPHC_OK) return 2;
    if (graphc_session_create(p, NULL, &s, why, sizeof why) != GRAPHC_OK) return 3;
    puts(graphc_plan_input(p, 0).name);
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    graphc_compiled_destroy(c);
    return 0;
}
"""
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C CXX)
find_package(graphc 0.1 REQUIRED)
add_executable(as_c use.c)
add_executable(as_cxx use.cpp)
foreach(t as_c as_cxx)
  target_link_libraries(${t} PRIVATE graphc::graphc graphc::graphc_compile)
endforeach()
"""


def call(*args, env=None, cwd=None):
    """Standard output; a failure is reported."""
    global failures
    p = subprocess.run(args, capture_output=True, text=True, env={**os.environ, **(env or {})}, cwd=cwd)
    if p.returncode:
        failures += 1
        print(f"FAILED {' '.join(args)}: exit {p.returncode}\n{(p.stderr + p.stdout)[-1500:]}")
    return p.stdout


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print("FAILED", what)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def headers(include):
    """Each header alone and twice, in the oldest and a newer standard of each language."""
    for name, use in HEADERS.items():
        text = f'#include "{name}"\n#include "{name}"\nint main(void) {{ {use} return 0; }}\n'
        for compiler, file, standards in (("cc", "h.c", ("c17", "gnu2x")), ("c++", "h.cpp", ("c++11", "c++20"))):
            write(file, text)
            for std in standards:
                call(compiler, f"-std={std}", *WARN, "-Wno-missing-field-initializers", "-fsyntax-only", f"-I{include}", file)


def installed(build_folder, source):
    call("cmake", "--install", build_folder, "--prefix", os.path.abspath("first"))
    os.rename("first", "moved")
    prefix = os.path.abspath("moved")
    lib = next((os.path.dirname(os.path.join(d, f)) for d, _, files in os.walk(prefix) for f in files if f == "libgraphc.so"), "")
    check(lib, "libgraphc.so is not installed")
    env = {"PKG_CONFIG_PATH": f"{lib}/pkgconfig", "LD_LIBRARY_PATH": lib}
    for f in ("bin/graphc", "include/graphc.h", "include/graphc_train.h", "include/graphc_compile.h", "include/graphc_status.h", "share/man/man1/graphc.1"):
        check(os.path.exists(f"{prefix}/{f}"), f"{f} is not installed")
    headers(f"{prefix}/include")
    build.mlp("mlp.onnx")
    write("use.c", USE), write("use.cpp", USE)
    flags = call("pkg-config", "--cflags", "--libs", "graphc", "graphc_compile", env=env).split()
    for compiler, file, std in (("cc", "use.c", "c17"), ("c++", "use.cpp", "c++17")):
        call(compiler, f"-std={std}", *WARN, file, "-o", "used", *flags)
        check(call("./used", "mlp.onnx", env=env) == "x\n", f"what pkg-config built from {file}")
    call("cc", "-std=gnu17", *WARN, f"{source}/models/run_plan.c", "-o", "run_plan",
         *call("pkg-config", "--cflags", "--libs", "graphc", env=env).split())
    call("cc", "-std=c17", *WARN, f"{source}/models/finetune.c", "-o", "finetune", *flags)
    call(f"{prefix}/bin/graphc", "mlp.onnx", "-o", "mlp.plan", env=env)
    check("y" in call("./run_plan", "mlp.plan", "batch=3", env=env), "run_plan on the installed library")
    os.makedirs("consumer")
    write("consumer/CMakeLists.txt", CMAKE), write("consumer/use.c", USE), write("consumer/use.cpp", USE)
    call("cmake", "-S", "consumer", "-B", "made", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", "made")
    for program in ("as_c", "as_cxx"):
        check(call(f"made/{program}", "mlp.onnx", env=env) == "x\n", f"what the CMake package built: {program}")
    check("graphc" in call(f"{prefix}/bin/graphc", "--version", env=env), "--version of the installed program")


def static(source):
    """One program without LLVM's shared library, that compiles and runs a model."""
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    folder = os.path.abspath("static")
    call("cmake", "--preset", "static", "-B", folder, *launcher, cwd=source)
    call("cmake", "--build", folder, "--target", "graphc_cli")
    graphc = f"{folder}/bin/graphc"
    needs = call("ldd", graphc) if os.path.exists(graphc) else "no program"
    check("libc.so" in needs and not any(x in needs for x in ("LLVM", "protobuf", "stdc++", "jansson")), f"it needs {needs}")
    build.mlp("mlp.onnx")
    call(graphc, "mlp.onnx", "-o", "mlp.plan")
    call(graphc, "run", "mlp.plan", "--dim", "batch=5", "--output-dir", "out")
    check(os.path.exists("out/y.npy"), "the static program's output")


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    static(sys.argv[2]) if sys.argv[1] == "--static" else installed(*sys.argv[1:])
print(f"{failures} failures")
sys.exit(failures != 0)
