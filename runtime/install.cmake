# cmake --install: headers, two libraries, the program, pkg-config and CMake package files, man page.
include(CMakePackageConfigHelpers)
install(TARGETS graphc graphc_compile graphc_cli EXPORT graphcTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES runtime/graphc.h runtime/base/graphc_status.h frontend/graphc_compile.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT graphcTargets NAMESPACE graphc:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/graphc)
file(WRITE ${CMAKE_BINARY_DIR}/graphcConfig.cmake
  "include(\"\${CMAKE_CURRENT_LIST_DIR}/graphcTargets.cmake\")\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/graphcConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/graphcConfig.cmake ${CMAKE_BINARY_DIR}/graphcConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/graphc)
foreach(lib graphc graphc_compile)
  file(WRITE ${CMAKE_BINARY_DIR}/${lib}.pc "prefix=${CMAKE_INSTALL_PREFIX}
Name: ${lib}
Description: graphc ${lib} library
Version: ${PROJECT_VERSION}
Cflags: -I\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
Libs: -L\${prefix}/${CMAKE_INSTALL_LIBDIR} -l${lib}
")
  install(FILES ${CMAKE_BINARY_DIR}/${lib}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
if(EXISTS ${CMAKE_SOURCE_DIR}/frontend/driver/graphc.1)
  install(FILES frontend/driver/graphc.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
