# Target llvm: LLVM 22's headers and libraries, shared by default, the two targets' static archives
# with GRAPHC_STATIC_LLVM.
find_program(LLVM_CONFIG NAMES ${GRAPHC_LLVM_CONFIG} REQUIRED)
execute_process(COMMAND ${LLVM_CONFIG} --version OUTPUT_VARIABLE llvm_version
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT llvm_version MATCHES "^22\\.")
  message(FATAL_ERROR "graphc needs LLVM 22, ${LLVM_CONFIG} is ${llvm_version}")
endif()
execute_process(COMMAND ${LLVM_CONFIG} --includedir OUTPUT_VARIABLE llvm_include
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(GRAPHC_STATIC_LLVM)
  execute_process(COMMAND ${LLVM_CONFIG} --link-static --ldflags --libs --system-libs x86codegen
    nvptxcodegen passes irreader OUTPUT_VARIABLE llvm_flags OUTPUT_STRIP_TRAILING_WHITESPACE)
else()
  execute_process(COMMAND ${LLVM_CONFIG} --link-shared --ldflags --libs OUTPUT_VARIABLE llvm_flags
    OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
string(REGEX REPLACE "[ \n]+" ";" llvm_flags "${llvm_flags}")
if(GRAPHC_STATIC_LLVM)
  # Of the system libraries only compression is reached from the two targets' code generators.
  list(FILTER llvm_flags EXCLUDE REGEX "z3|xml2|tinfo|ffi|edit")
  list(TRANSFORM llvm_flags REPLACE "^-l(z|zstd)$" "-l:lib\\1.a")
  list(APPEND llvm_flags -static-libstdc++ -static-libgcc)
endif()
add_library(llvm INTERFACE)
target_include_directories(llvm SYSTEM INTERFACE ${llvm_include})
target_link_libraries(llvm INTERFACE ${llvm_flags})

# NVIDIA's PTX compiler as a library, optional: with it no ptxas has to be installed where models are
# compiled, and a kernel costs no process. From the CUDA toolkit, or where tests/setup nvptxcompiler
# put it.
option(GRAPHC_NVPTXCOMPILER "use NVIDIA's PTX compiler library when it is there" ON)
set(nvptxcompiler_places ${PROJECT_SOURCE_DIR}/.cache/nvptxcompiler/nvidia/cu13 /usr/local/cuda)
find_library(NVPTXCOMPILER NAMES libnvptxcompiler_static.a HINTS ${nvptxcompiler_places}
  PATH_SUFFIXES lib lib64)
find_path(NVPTXCOMPILER_INCLUDE NAMES nvPTXCompiler.h HINTS ${nvptxcompiler_places}
  PATH_SUFFIXES include)
if(GRAPHC_NVPTXCOMPILER AND NVPTXCOMPILER AND NVPTXCOMPILER_INCLUDE)
  target_include_directories(llvm SYSTEM INTERFACE ${NVPTXCOMPILER_INCLUDE})
  target_compile_definitions(llvm INTERFACE GRAPHC_NVPTXCOMPILER)
  target_link_libraries(llvm INTERFACE ${NVPTXCOMPILER})
endif()
