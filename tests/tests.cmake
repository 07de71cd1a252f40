# One ctest entry per unit-test program tests/unit/*/test_*.c and per script below.
# Labels: quick (about a minute in all), full, gpu; part: quick, of what another entry does whole; whole: full, what a quick
# entry does under sanitizers (GRAPHC_TEST_ALL), so that tests/run leaves it to them. Limits of time are there for what hangs.

# Fifty programs are linked anew after any change: gold, which comes with binutils, takes a quarter of ld's time for each,
# half of it under sanitizers. It warns of every name that clang's ones take out.
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=gold GRAPHC_GOLD)
if(GRAPHC_GOLD AND NOT GRAPHC_SANITIZE MATCHES fuzzer)
  add_link_options(-fuse-ld=gold)
endif()

file(GLOB unit_tests CONFIGURE_DEPENDS tests/unit/test_*.c tests/unit/*/test_*.c)
foreach(source ${unit_tests})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # Not for all, so that ThreadSanitizer's build, of four of them, does without.
  if(source MATCHES "/unit/(test_|frontend/|fusion/test_schedule.c|runtime/test_no_memory.c)")
    target_link_libraries(${name} PRIVATE gc_driver gc_frontend onnx_schema)
  endif()
  target_link_libraries(${name} PRIVATE gc_flags gc_codegen gc_fusion gc_graph gc_runtime gc_base llvm
    Threads::Threads ${CMAKE_DL_LIBS} m)
  add_test(NAME unit/${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(unit/${name} PROPERTIES LABELS quick SKIP_RETURN_CODE 77 TIMEOUT 1500
    ENVIRONMENT "GRAPHC_TEST_SOURCE=${PROJECT_SOURCE_DIR}")
endforeach()

# All cases of those that take one of several in the quick set (test_takes in test.h).
foreach(name test_codegen test_templates test_flash test_flash_gradient test_nvptx test_check test_schedule_random)
  add_test(NAME unit/${name}/all COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(unit/${name}/all PROPERTIES LABELS "full;whole" TIMEOUT 3000
    ENVIRONMENT "GRAPHC_TEST_SOURCE=${PROJECT_SOURCE_DIR};GRAPHC_TEST_ALL=1")
endforeach()

# Drivers that unit/test_cuda_faults, test_cuda_inputs and test_cuda_launch open in place of the real one.
foreach(fake cuda_fake cuda_old)
  add_library(${fake} MODULE tests/fake_cuda/fake_cuda.c)
  set_target_properties(${fake} PROPERTIES PREFIX lib OUTPUT_NAME cuda SUFFIX .so.1
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${fake} LINK_FLAGS -Wl,-soname,libcuda.so.1)
  target_link_libraries(${fake} PRIVATE gc_flags)
  add_dependencies(test_cuda_faults ${fake})
  add_dependencies(test_cuda_inputs ${fake})
  add_dependencies(test_cuda_launch ${fake})
endforeach()
target_compile_definitions(cuda_old PRIVATE FAKE_CUDA_OLD)

# A GPU against the CPU on one plan with both targets: needs no LLVM, so it can be taken elsewhere.
# launch_check does the same for launch_plan's plan, which holds every fact that a launch can have.
foreach(tool plan_compare train_compare launch_check tokens)
  add_executable(${tool} tests/gpu/${tool}.c)
  target_link_libraries(${tool} PRIVATE gc_flags gc_runtime gc_base Threads::Threads
    ${CMAKE_DL_LIBS} m)
endforeach()
add_executable(launch_plan tests/gpu/launch_plan.c)
target_link_libraries(launch_plan PRIVATE gc_flags gc_driver ${compiler_layers} gc_runtime gc_base
  llvm onnx_schema Threads::Threads ${CMAKE_DL_LIBS} m)
set_target_properties(launch_plan launch_check PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_test(NAME gpu/launch_plan COMMAND launch_plan ${PROJECT_BINARY_DIR}/tests/launch.plan)
add_test(NAME gpu/launch_check COMMAND launch_check ${PROJECT_BINARY_DIR}/tests/launch.plan)
set_tests_properties(gpu/launch_plan gpu/launch_check PROPERTIES LABELS gpu SKIP_RETURN_CODE 77)
set_tests_properties(gpu/launch_plan PROPERTIES FIXTURES_SETUP launch_plan)
set_tests_properties(gpu/launch_check PROPERTIES FIXTURES_REQUIRED launch_plan)

# Programs that scripts below run.
foreach(source fuzz/mutate conformance/suite_eval conformance/suite_grad
    train/train_tool)
  get_filename_component(name ${source} NAME)
  add_executable(${name} tests/${source}.c)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE gc_flags gc_driver ${compiler_layers} gc_runtime gc_base llvm
    onnx_schema Threads::Threads ${CMAKE_DL_LIBS} m)
endforeach()

# Targets of libFuzzer (preset fuzz): tests/fuzz/nightly runs them. Elsewhere the same on files (fuzz/corpus).
function(graphc_fuzz formats layers)
  foreach(format ${formats})
    if(GRAPHC_SANITIZE MATCHES fuzzer)
      set(name fuzz_${format})
      add_executable(${name} tests/fuzz/targets/fuzz_${format}.c)
      target_link_libraries(${name} PRIVATE -fsanitize=fuzzer)
    else()
      set(name replay_${format})
      add_executable(${name} tests/fuzz/targets/fuzz_${format}.c tests/fuzz/targets/replay.c)
    endif()
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_link_libraries(${name} PRIVATE gc_flags ${layers} gc_base Threads::Threads ${CMAKE_DL_LIBS} m)
  endforeach()
endfunction()
graphc_fuzz("plan;safetensors;adapter;data;checkpoint;log" "gc_runtime")
graphc_fuzz("gir;kir" "gc_fusion;gc_graph")
graphc_fuzz("onnx;tensor;options" "gc_driver;${compiler_layers};gc_runtime;llvm;onnx_schema")
foreach(name fuzz_options replay_options)
  if(TARGET ${name})
    target_sources(${name} PRIVATE frontend/driver/cli/config/yaml.c frontend/driver/cli/tune/database.c)
    target_link_libraries(${name} PRIVATE ${JANSSON})
  endif()
endforeach()

# Eight threads and a plan, for as long as one asks.
add_executable(soak tests/fuzz/soak.c)
target_link_libraries(soak PRIVATE gc_flags gc_runtime gc_base Threads::Threads ${CMAKE_DL_LIBS} m)
set_target_properties(soak PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

# Many command lines from one start of graphc. A sanitizer's library would have to come before it.
if(NOT GRAPHC_SANITIZE)
  add_library(forks MODULE tests/forks.c)
  set_target_properties(forks PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(forks PRIVATE gc_flags ${CMAKE_DL_LIBS})
endif()

add_executable(api_tool tests/train/api_tool.c)
target_link_libraries(api_tool PRIVATE graphc m)
set_target_properties(api_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

# Of graphc's own calls one fails. A sanitizer's library would have to come before it.
if(NOT GRAPHC_SANITIZE)
  add_library(faulty MODULE tests/cli/faulty/faulty.c)
  set_target_properties(faulty PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(faulty PRIVATE gc_flags ${CMAKE_DL_LIBS})
endif()

# graphc with a fault between fusion and code generation.
add_executable(planted tests/cli/planted.c $<TARGET_OBJECTS:graphc_cli>)
target_link_libraries(planted PRIVATE gc_flags onnx_schema -Wl,--wrap=codegen_run gc_driver ${compiler_layers} ${JANSSON}
  gc_runtime gc_base llvm Threads::Threads ${CMAKE_DL_LIBS} m)
set_target_properties(planted PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

# graphc whose kernels on the CPU run on operands between pages that no one may touch.
add_executable(fenced tests/cli/fenced/fenced.c $<TARGET_OBJECTS:graphc_cli>)
target_link_libraries(fenced PRIVATE gc_flags onnx_schema -Wl,--wrap=device_cpu gc_driver ${compiler_layers} ${JANSSON}
  gc_runtime gc_base llvm Threads::Threads ${CMAKE_DL_LIBS} m)
set_target_properties(fenced PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

set(python ${PROJECT_SOURCE_DIR}/.cache/venv/bin/python)
# seconds: what it may take by itself; beside other work, or on a slow machine, five times of that.
function(graphc_script name label seconds)
  math(EXPR timeout "5 * ${seconds}")
  if(name MATCHES "/some$")
    list(APPEND label part)
  endif()
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${label}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77)
endfunction()

graphc_script(lint/layers quick 60 tests/lint/layers)
graphc_script(lint/tree quick 60 tests/lint/tree)
graphc_script(lint/links quick 60 ${python} tests/lint/links.py)
graphc_script(lint/dead quick 60 tests/lint/dead)
graphc_script(lint/circles quick 60 tests/lint/circles)
graphc_script(lint/size quick 60 tests/lint/size)
graphc_script(lint/format quick 60 tests/lint/format)
graphc_script(lint/exports quick 60 tests/lint/exports ${PROJECT_BINARY_DIR})
graphc_script(lint/documented quick 60 tests/lint/documented $<TARGET_FILE:graphc_cli>)
graphc_script(lint/faults quick 60 ${python} tests/faults.py --check)
graphc_script(lint/checks quick 120 ${python} tests/lint/checks.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/errors quick 120 ${python} tests/cli/errors.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/files quick 120 ${python} tests/cli/files.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/nodes quick 120 ${python} tests/cli/nodes.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/bounds/some quick 200 ${python} tests/cli/bounds.py $<TARGET_FILE:graphc_cli> --some)
graphc_script(cli/bounds full 200 ${python} tests/cli/bounds.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/early quick 120 ${python} tests/cli/early.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/unrolled quick 120 ${python} tests/cli/unrolled.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/decisions quick 120 ${python} tests/cli/decisions.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/slices quick 120 ${python} tests/models/slices.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/one_query quick 120 ${python} tests/cli/one_query.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/bf16 quick 120 ${python} tests/cli/bf16.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/few_bits full 120 ${python} tests/cli/few_bits.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/verify quick 200 ${python} tests/cli/verify.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/planted full 300 ${python} tests/cli/planted.py $<TARGET_FILE:planted>)
graphc_script(cli/fenced quick 120 ${python} tests/cli/fenced/fenced.py $<TARGET_FILE:fenced>)
graphc_script(cli/completions full 200 ${python} tests/lint/completions.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/terminal full 200 ${python} tests/cli/terminal.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/pages full 300 ${python} tests/cli/pages.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/stopped quick 60 ${python} tests/cli/stopped.py $<TARGET_FILE:graphc_cli>)
if(NOT GRAPHC_SANITIZE)
  graphc_script(cli/faulty full 900 ${python} tests/cli/faulty/faulty.py $<TARGET_FILE:graphc_cli> $<TARGET_FILE:faulty>)
  set_tests_properties(cli/faulty PROPERTIES COST 60)
endif()
graphc_script(cli/json quick 120 ${python} tests/cli/json_fields.py $<TARGET_FILE:graphc_cli>)
graphc_script(cli/reproducible/some quick 120 ${python} tests/cli/reproducible.py $<TARGET_FILE:graphc_cli> --some)
graphc_script(cli/tune full 200 ${python} tests/cli/tune.py $<TARGET_FILE:graphc_cli> $<TARGET_FILE_DIR:cuda_fake>)
graphc_script(cli/reproducible full 200 ${python} tests/cli/reproducible.py $<TARGET_FILE:graphc_cli>)
graphc_script(conformance_grad/some quick 120 ${python} tests/conformance/grad.py $<TARGET_FILE:suite_grad> --some)
graphc_script(conformance_grad full 300 ${python} tests/conformance/grad.py $<TARGET_FILE:suite_grad>)
graphc_script(conformance_eval/some quick 300 ${python} tests/conformance/eval.py $<TARGET_FILE:suite_eval> --some)
graphc_script(conformance_eval full 300 ${python} tests/conformance/eval.py $<TARGET_FILE:suite_eval>)
foreach(model mlp conv attention tensors)
  graphc_script(fuzz/${model} quick 600 ${python} tests/fuzz/run.py $<TARGET_FILE:graphc_cli>
    $<TARGET_FILE:mutate> ${model})
  graphc_script(fuzz/${model}/all "full;whole" 1200 ${python} tests/fuzz/run.py $<TARGET_FILE:graphc_cli>
    $<TARGET_FILE:mutate> ${model})
  set_tests_properties(fuzz/${model}/all PROPERTIES ENVIRONMENT GRAPHC_TEST_ALL=1)
endforeach()
graphc_script(fuzz/corpus quick 120 ${python} tests/fuzz/corpus.py $<TARGET_FILE:graphc_cli> $<TARGET_FILE_DIR:soak>)
graphc_script(fuzz/soak full 120 ${python} tests/fuzz/soak.py $<TARGET_FILE:graphc_cli> $<TARGET_FILE:soak> 3)
graphc_script(fuzz/wild full 600 ${python} tests/fuzz/wild.py $<TARGET_FILE:graphc_cli> --count 60)
graphc_script(fuzz/graphs full 600 ${python} tests/fuzz/graphs.py run $<TARGET_FILE:graphc_cli> --count 150)
graphc_script(fuzz/graphs/fenced full 600 ${python} tests/fuzz/graphs.py run $<TARGET_FILE:fenced> --seed 150 --count 150)
graphc_script(fuzz/products full 600 ${python} tests/fuzz/products.py $<TARGET_FILE:fenced> --count 100)
graphc_script(fuzz/gradients full 600 ${python} tests/fuzz/gradients.py $<TARGET_FILE:graphc_cli> --count 150)
graphc_script(fuzz/table full 600 ${python} tests/fuzz/graphs.py run $<TARGET_FILE:graphc_cli> --of table --count 60)
graphc_script(train/formats quick 120 ${python} tests/train/formats.py $<TARGET_FILE:train_tool>)
graphc_script(train/page full 120 ${python} tests/train/page.py $<TARGET_FILE:train_tool>)
graphc_script(train/peft full 300 ${python} tests/train/peft_files.py $<TARGET_FILE:train_tool>)
graphc_script(train/adapters full 600 ${python} tests/train/adapters.py $<TARGET_FILE:graphc_cli>)
graphc_script(train/data quick 120 ${python} tests/train/data.py $<TARGET_FILE:train_tool>)
graphc_script(train/mistaken quick 120 ${python} tests/train/mistaken.py $<TARGET_FILE:graphc_cli>)
graphc_script(train/loop/some quick 120 ${python} tests/train/loop.py $<TARGET_FILE:graphc_cli> --some)
graphc_script(train/loop full 300 ${python} tests/train/loop.py $<TARGET_FILE:graphc_cli>)
graphc_script(train/api quick 120 ${python} tests/train/api.py $<TARGET_FILE:graphc_cli> $<TARGET_FILE:finetune>
  $<TARGET_FILE:api_tool>)
graphc_script(train/api/llama_small full 600 ${python} tests/train/api.py $<TARGET_FILE:graphc_cli>
  $<TARGET_FILE:finetune> $<TARGET_FILE:api_tool> .cache/models/llama_small.onnx)
graphc_script(train/updates/some quick 120 ${python} tests/train/updates.py $<TARGET_FILE:graphc_cli> --some)
graphc_script(train/updates full 300 ${python} tests/train/updates.py $<TARGET_FILE:graphc_cli>)
graphc_script(train/ahead quick 120 ${python} tests/train/ahead.py $<TARGET_FILE:graphc_cli>)
graphc_script(train/split_gradient quick 120 ${python} tests/train/split_gradient.py $<TARGET_FILE:graphc_cli>)
graphc_script(train/apart quick 120 ${python} tests/train/apart.py $<TARGET_FILE:graphc_cli>)
graphc_script(train/phases full 120 ${python} tests/train/phases.py $<TARGET_FILE:graphc_cli>)
graphc_script(train/real_text full 1200 ${python} tests/train/real_text.py $<TARGET_FILE:graphc_cli> .cache/models)
graphc_script(train/kills full 600 ${python} tests/train/loop.py $<TARGET_FILE:graphc_cli> --kills)
graphc_script(train/memory full 300 ${python} tests/train/memory.py $<TARGET_FILE:graphc_cli>)
graphc_script(train/peers full 600 ${python} tests/train/peers.py $<TARGET_FILE:graphc_cli>)
graphc_script(oracle/some quick 120 ${python} tests/oracle/run.py $<TARGET_FILE:fenced> fused
  --only "(_5x13x7|7x10_3_5|conv_integer_7x10|of_one_).*_open$")
graphc_script(oracle/joined quick 120 ${python} tests/oracle/joined.py $<TARGET_FILE:fenced>)
graphc_script(oracle/all full 1200 ${python} tests/oracle/run.py $<TARGET_FILE:graphc_cli>)
graphc_script(oracle/unary_avx2 full 300 ${python} tests/oracle/run.py $<TARGET_FILE:graphc_cli> core --only unary --isa 3)
graphc_script(oracle/attention_gradients/some quick 120 ${python} tests/oracle/attention_gradients.py
  $<TARGET_FILE:fenced> --only "one_query|sees_nothing")
graphc_script(oracle/attention_gradients full 400 ${python} tests/oracle/attention_gradients.py
  $<TARGET_FILE:graphc_cli>)
graphc_script(oracle/point_gradients quick 120 ${python} tests/oracle/point_gradients.py $<TARGET_FILE:graphc_cli>)
graphc_script(oracle/operator_gradients full 300 ${python} tests/oracle/operator_gradients.py $<TARGET_FILE:graphc_cli>)
graphc_script(oracle/quantised/some quick 120 ${python} tests/oracle/quantised.py $<TARGET_FILE:fenced>
  --only "qdq_(uint8.1_int8|int8-128_int8)|dynamic.*33x100x130")
graphc_script(oracle/quantised full 400 ${python} tests/oracle/quantised.py $<TARGET_FILE:graphc_cli>)
graphc_script(oracle/quantised/units full 400 ${python} tests/oracle/quantised.py $<TARGET_FILE:graphc_cli> --units)
graphc_script(oracle/quantised/cuda gpu 400 ${python} tests/oracle/quantised.py $<TARGET_FILE:graphc_cli> --device cuda)
graphc_script(gpu/tokens_cpu quick 120 ${python} tests/gpu/tokens.py $<TARGET_FILE:graphc_cli> $<TARGET_FILE:tokens> --device cpu)
graphc_script(gpu/tokens gpu 300 ${python} tests/gpu/tokens.py $<TARGET_FILE:graphc_cli> $<TARGET_FILE:tokens>)
graphc_script(gpu/steps gpu 300 ${python} tests/gpu/steps.py $<TARGET_FILE:graphc_cli>)
graphc_script(gpu/ragged gpu 900 ${python} tests/gpu/ragged.py test $<TARGET_FILE:graphc_cli> $<TARGET_FILE:plan_compare>)
graphc_script(gpu/random_products gpu 300 ${python} tests/gpu/random_products.py test $<TARGET_FILE:graphc_cli> $<TARGET_FILE:plan_compare> --count 200)
graphc_script(gpu/random_steps gpu 300 ${python} tests/gpu/random_steps.py test $<TARGET_FILE:graphc_cli> $<TARGET_FILE:train_compare> --count 24)
graphc_script(conformance full 1500 ${python} tests/conformance/run.py $<TARGET_FILE:graphc_cli>)
graphc_script(dtypes full 900 ${python} tests/oracle/dtypes.py $<TARGET_FILE:graphc_cli>)
foreach(suite conformance/run oracle/dtypes)
  get_filename_component(name ${suite} NAME)
  string(REPLACE run conformance name ${name})
  graphc_script(${name}_sm_90a full 1500 ${python} tests/${suite}.py $<TARGET_FILE:graphc_cli>
    --target sm_90a --compile-only)
  graphc_script(${name}_cuda gpu 1500 ${python} tests/${suite}.py $<TARGET_FILE:graphc_cli>
    --device cuda)
  set_tests_properties(${name}_cuda PROPERTIES RUN_SERIAL TRUE) # one context after the other
endforeach()
graphc_script(cli/install full 300 ${python} tests/cli/install.py ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
graphc_script(python/package full 300 ${python} tests/python/package.py ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}
  ${PROJECT_VERSION})
graphc_script(cli/documents full 600 ${python} tests/cli/documents.py ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}
  models/TEN_MINUTES.md)
graphc_script(cli/valgrind full 600 ${python} tests/cli/valgrind.py ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
graphc_script(cli/fetch full 900 ${python} tests/cli/install.py --fetch ${PROJECT_SOURCE_DIR})
graphc_script(cli/release full 300 tests/release ${PROJECT_BINARY_DIR}/release ${PROJECT_BINARY_DIR})
graphc_script(cli/contributing full 1800 ${python} tests/cli/contributing.py ${PROJECT_BINARY_DIR}/contributing)
graphc_script(cli/static full 900 ${python} tests/cli/install.py --static ${PROJECT_SOURCE_DIR})
set_tests_properties(cli/static PROPERTIES DEPENDS cli/fetch) # of which a compiler cache remembers most
graphc_script(models/claims full 900 ${python} tests/models/claims.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/tensor_cores_small quick 120 ${python} tests/models/tensor_cores_small.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/tensor_cores full 600 ${python} tests/models/tensor_cores.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/prepared quick 120 ${python} tests/models/prepared.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/rows quick 120 ${python} tests/models/rows.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/bias quick 120 ${python} tests/models/bias.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/ahead full 120 ${python} tests/models/ahead.py $<TARGET_FILE:graphc_cli>)
# All models in all forms take an hour: tests/models/verify.py GRAPHC.
graphc_script(models/verify full 1200 ${python} tests/models/verify.py $<TARGET_FILE:graphc_cli>
  unet mobilenet_v3_large llama_small --form f32 bf16 f16 half bfloat dynamic)
graphc_script(models/verify/qdq full 600 ${python} tests/models/verify.py $<TARGET_FILE:graphc_cli>
  mobilenet_v3_large llama_small --form qdq)
graphc_script(models/verify/qoperator full 600 ${python} tests/models/verify.py $<TARGET_FILE:graphc_cli>
  unet --form qoperator)
graphc_script(models/cache_state full 600 ${python} tests/models/cache_state.py $<TARGET_FILE:graphc_cli>
  $<TARGET_FILE:graphc>)
graphc_script(models/readme full 600 ${python} tests/models/readme.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/explain full 600 ${python} tests/models/explain.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/precision full 600 ${python} tests/models/precision.py $<TARGET_FILE:graphc_cli>)
graphc_script(models/grad full 1800 ${python} tests/models/grad.py $<TARGET_FILE:graphc_cli> --batch 1)
graphc_script(models/exports full 600 ${python} tests/models/exports.py $<TARGET_FILE:graphc_cli>)
graphc_script(models full 1200 ${python} tests/models/run.py $<TARGET_FILE:graphc_cli> --isa 4,3 --threads 1,3)

# Seconds of processor time of what is long. ctest starts these first, so that none is left over for one core at the end.
# Templates and mutants take a minute or two under sanitizers.
set(costs oracle/all 240 conformance_sm_90a 120 conformance 80 models 70 dtypes 40 dtypes_sm_90a 45
  fuzz/graphs 55 fuzz/table 60 fuzz/products 25 fuzz/gradients 15 oracle/quantised/units 40 models/tensor_cores 85 models/claims 50
  fuzz/wild 22 fuzz/graphs/fenced 55 cli/planted 17 cli/install 8 cli/fenced 7
  models/explain 45 cli/fetch 70 cli/contributing 65 models/verify 60 oracle/attention_gradients 50 cli/static 13 cli/documents 30
  train/loop 25 unit/test_templates/all 20 conformance_grad 18 cli/bounds 15 train/page 12 unit/test_templates 7
  fuzz/attention 6 fuzz/mlp 5 fuzz/conv 5 oracle/some 6 cli/errors 6 cli/bounds/some 6 train/loop/some 6
  train/phases 5 models/prepared 6 models/tensor_cores_small 5 fuzz/corpus 5 cli/verify 5 train/api 4 train/mistaken 4 train/data 4
  oracle/attention_gradients/some 4 unit/test_check 4 unit/test_schedule_random 4 unit/test_schedule 3 models/rows 3 cli/nodes 3
  conformance_grad/some 3 cli/bf16 3 cli/reproducible/some 3 unit/test_codegen 5 unit/test_flash 6)
while(costs)
  list(POP_FRONT costs name cost)
  set_tests_properties(${name} PROPERTIES COST ${cost})
endwhile()
