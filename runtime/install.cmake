# cmake --install: headers, libraries, the program, pkg-config and CMake package files, examples, manual page,
# shell completions. Everything installed may be moved as a whole.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/graphc)
install(TARGETS ${libraries} EXPORT graphcTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT graphcTargets NAMESPACE graphc:: DESTINATION ${package_dir})
file(WRITE ${PROJECT_BINARY_DIR}/graphcConfig.cmake "include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(\"\${CMAKE_CURRENT_LIST_DIR}/graphcTargets.cmake\")
")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/graphcConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/graphcConfig.cmake ${PROJECT_BINARY_DIR}/graphcConfigVersion.cmake
  DESTINATION ${package_dir})

set(description_graphc "runs plans of fused kernels on CPUs and NVIDIA GPUs")
set(description_graphc_compile "compiles ONNX models into plans for graphc")
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH to_prefix /${pkgconfig_dir} /)
foreach(lib ${libraries})
  if(NOT DEFINED description_${lib}) # the archive is what --static takes
    continue()
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/${lib}.pc "prefix=\${pcfiledir}/${to_prefix}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
Name: ${lib}
Description: ${description_${lib}}
Version: ${PROJECT_VERSION}
Cflags: -I\${includedir}
Libs: -L\${libdir} -l${lib}
Libs.private: -lpthread -ldl -lm
")
  install(FILES ${PROJECT_BINARY_DIR}/${lib}.pc DESTINATION ${pkgconfig_dir})
endforeach()

install(FILES models/run_plan.c models/finetune.c DESTINATION ${CMAKE_INSTALL_DATADIR}/graphc/examples)
install(DIRECTORY models/examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/graphc/examples)

if(GRAPHC_COMPILER)
  install(TARGETS graphc_cli EXPORT graphcTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES frontend/driver/graphc.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES frontend/driver/schema.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES frontend/driver/completions/graphc.bash RENAME graphc
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES frontend/driver/completions/_graphc
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES frontend/driver/completions/graphc.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
