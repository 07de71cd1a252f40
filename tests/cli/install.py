"""What `cmake --install` puts down is enough for others: public headers alone as C and as C++, pkg-config, the
CMake package, the archive, the examples, the program, all from a prefix that has been moved. So is the source as a part
of another project.

    install.py BUILD_FOLDER SOURCE_FOLDER
    install.py --fetch SOURCE_FOLDER        C++ projects that get graphc by FetchContent, without the compiler and with it
    install.py --static SOURCE_FOLDER       configures, builds and tries the preset `static`
"""
import os, shutil, subprocess, sys, tempfile
import onnx

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build

failures = 0
LAUNCHER = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
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
# Names that graphc uses inside are free for others.
CLASH = """#include <graphc.h>
#include <stdio.h>
int arena_alloc(void); int arena_alloc(void) { return 1; }
int diag(void); int diag(void) { return 2; }
int file_map(void); int file_map(void) { return 3; }
int tensor_bytes(void); int tensor_bytes(void) { return 4; }
int main(int argc, char **argv) {
    char why[256];
    graphc_plan *p;
    graphc_session *s;
    if (argc != 2 || graphc_plan_load(argv[1], &p, why, sizeof why) != GRAPHC_OK) return 1;
    if (graphc_session_create(p, NULL, &s, why, sizeof why) != GRAPHC_OK) return 2;
    float x[2 * 32] = {0};
    graphc_tensor t = {x, GRAPHC_CPU, 0, graphc_plan_input(p, 0).dtype, 2, {2, 32}};
    if (graphc_bind_input(s, 0, &t) != GRAPHC_OK || graphc_run(s) != GRAPHC_OK) return 3;
    printf("%d\\n", arena_alloc() + diag() + file_map() + tensor_bytes());
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    return 0;
}
"""
FETCH = """cmake_minimum_required(VERSION 3.25)
project(fetching LANGUAGES C CXX)
set(CMAKE_BUILD_TYPE Debug) # builds in half the time
set(CMAKE_C_FLAGS_DEBUG "") # as the preset `static` is tried: a compiler cache finds what one of them has built
include(FetchContent)
set(GRAPHC_COMPILER COMPILER CACHE BOOL "")
FetchContent_Declare(graphc SOURCE_DIR "SOURCE")
FetchContent_MakeAvailable(graphc)
add_executable(fetched use.cpp)
target_compile_options(fetched PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
target_link_libraries(fetched PRIVATE LIBRARIES)
if(TARGET run_plan OR TARGET test_base)
  message(FATAL_ERROR "examples or tests came along")
endif()
"""
RUNS = """#include <graphc.h>
#include <cstdio>
int main(int argc, char **argv) {
    graphc_plan *p = nullptr;
    char why[256];
    if (argc != 2 || graphc_plan_load(argv[1], &p, why, sizeof why) != GRAPHC_OK) return 1;
    std::puts(graphc_plan_input(p, 0).name);
    graphc_plan_destroy(p);
    return 0;
}
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
    archive(prefix, lib)
    examples(prefix, env)


def archive(prefix, lib):
    """libgraphc.a: linked in place of the shared library, with nothing shared at all, and beside names of its own."""
    write("clash.c", CLASH)
    flags = ["clash.c", f"-I{prefix}/include", f"-L{lib}", "-l:libgraphc.a", "-lpthread", "-ldl", "-lm"]
    for how, more in (("part", []), ("whole", ["-static"])):
        call("cc", "-std=gnu17", "-Wall", *flags, "-o", how, *more)
        check(call(f"./{how}", "mlp.plan") == "10\n", f"what was linked with libgraphc.a ({how})")
    check("libgraphc" not in call("ldd", "./part"), "the archive was not what was linked")


def examples(prefix, env):
    """Each is built as its reader would and run."""
    where = f"{prefix}/share/graphc/examples"
    folder = os.path.abspath("external")
    os.makedirs(folder)
    onnx.save(onnx.load("mlp.onnx"), f"{folder}/m.onnx", save_as_external_data=True, location="m.weights", size_threshold=0)
    call("cmake", "-S", where, "-B", "examples", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DMODEL={folder}/m.onnx",
         "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror")
    call("cmake", "--build", "examples")
    check("4 threads, 50 runs each, equal results" in call("examples/threads", "mlp.plan", "4", "50", env=env), "threads")
    check(call("examples/run", "mlp.plan", "batch=3", env=env) == "y [3, 50]\n", "run")
    kernels = call("examples/compile", f"{folder}/m.onnx", env=env)
    check("matmul" in kernels and "3 nodes" in kernels, f"compile: {kernels}")
    os.rename(folder, folder + ".away")
    check(call("examples/embedded") == "y f32[1, 50]\n", "embedded")
    check(subprocess.run(["examples/run", "m.onnx"], capture_output=True).returncode == 1, "run of what is no plan")


def fetch(source):
    build.mlp("mlp.onnx")
    for compiler, use, libraries in (("OFF", RUNS, "graphc::graphc_static"), ("ON", USE, "graphc::graphc graphc::graphc_compile")):
        os.makedirs(compiler)
        write(f"{compiler}/CMakeLists.txt", FETCH.replace("SOURCE\"", f"{source}\"").replace("COMPILER CACHE", f"{compiler} CACHE")
              .replace("LIBRARIES", libraries))
        write(f"{compiler}/use.cpp", use)
        call("cmake", "-G", "Ninja", "-S", compiler, "-B", f"{compiler}/build", *LAUNCHER)
        call("cmake", "--build", f"{compiler}/build")
    check(call("ON/build/fetched", "mlp.onnx") == "x\n", "what FetchContent built with the compiler")
    call("ON/build/_deps/graphc-build/bin/graphc", "mlp.onnx", "-o", "mlp.plan")
    check(call("OFF/build/fetched", "mlp.plan") == "x\n", "what FetchContent built without the compiler")
    cache = open("OFF/build/CMakeCache.txt").read()
    check("LLVM_CONFIG:FILEPATH" not in cache and "PROTOC_C:" not in cache, "without the compiler LLVM or protobuf-c was looked for")


def static(source):
    """One program without LLVM's shared library, that compiles and runs a model."""
    folder = os.path.abspath("static")
    quick = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=", "-DCMAKE_COMPILE_WARNING_AS_ERROR=OFF"]  # as `fetch` builds
    call("cmake", "--preset", "static", "-B", folder, *LAUNCHER, *quick, cwd=source)
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
    {"--static": static, "--fetch": fetch}[sys.argv[1]](sys.argv[2]) if sys.argv[1][0] == "-" else installed(*sys.argv[1:])
print(f"{failures} failures")
sys.exit(failures != 0)
