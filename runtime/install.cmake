# cmake --install: headers, two libraries, the program, pkg-config and CMake package files, manual page,
# shell completions. Everything installed may be moved as a whole.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/graphc)
install(TARGETS graphc graphc_compile graphc_cli EXPORT graphcTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES runtime/graphc.h runtime/graphc_train.h runtime/base/graphc_status.h
  frontend/driver/graphc_compile.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT graphcTargets NAMESPACE graphc:: DESTINATION ${package_dir})
file(WRITE ${CMAKE_BINARY_DIR}/graphcConfig.cmake
  "include(\"\${CMAKE_CURRENT_LIST_DIR}/graphcTargets.cmake\")\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/graphcConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/graphcConfig.cmake ${CMAKE_BINARY_DIR}/graphcConfigVersion.cmake
  DESTINATION ${package_dir})

set(description_graphc "runs plans of fused kernels on CPUs and NVIDIA GPUs")
set(description_graphc_compile "compiles ONNX models into plans for graphc")
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH to_prefix /${pkgconfig_dir} /)
foreach(lib graphc graphc_compile)
  file(WRITE ${CMAKE_BINARY_DIR}/${lib}.pc "prefix=\${pcfiledir}/${to_prefix}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
Name: ${lib}
Description: ${description_${lib}}
Version: ${PROJECT_VERSION}
Cflags: -I\${includedir}
Libs: -L\${libdir} -l${lib}
")
  install(FILES ${CMAKE_BINARY_DIR}/${lib}.pc DESTINATION ${pkgconfig_dir})
endforeach()

install(FILES frontend/driver/graphc.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES frontend/driver/completions/graphc.bash RENAME graphc
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES frontend/driver/schema.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES frontend/driver/completions/graphc.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES frontend/driver/completions/_graphc
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
