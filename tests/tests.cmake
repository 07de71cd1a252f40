# One ctest entry per unit-test program tests/unit/test_*.c; scripts are listed below them.
# Labels: quick (under a minute in all), full, gpu.
file(GLOB unit_tests CONFIGURE_DEPENDS tests/unit/test_*.c)
foreach(source ${unit_tests})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE gc_flags gc_driver ${compiler_layers} gc_runtime gc_base llvm
    onnx_schema Threads::Threads ${CMAKE_DL_LIBS} m)
  add_test(NAME unit/${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(unit/${name} PROPERTIES LABELS quick SKIP_RETURN_CODE 77 TIMEOUT 300
    ENVIRONMENT "GRAPHC_TEST_SOURCE=${CMAKE_SOURCE_DIR}")
endforeach()
