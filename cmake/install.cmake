# `cmake --install`: the libraries with their headers, for find_package(isochron), and the programs.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/isochron)

# install_layers(EXPORT FOLDERS...): those that are built, and what they declare.
function(install_layers export)
  foreach(layer IN LISTS ARGN)
    if(TARGET isochron_${layer})
      install(TARGETS isochron_${layer} EXPORT ${export} COMPONENT library)
      install(DIRECTORY ${PROJECT_SOURCE_DIR}/isochron/${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/isochron
        COMPONENT library FILES_MATCHING PATTERN *.h)
    endif()
  endforeach()
  install(EXPORT ${export} NAMESPACE isochron:: DESTINATION ${package} COMPONENT library)
endfunction()

install_layers(isochronTargets core baselines sim plan data io server)
if(ISOCHRON_ENGINE)
  install(TARGETS isochron_torch EXPORT isochronEngineTargets COMPONENT library)
  install_layers(isochronEngineTargets comm engine model train)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/isochronConfig.cmake.in
  ${PROJECT_BINARY_DIR}/isochronConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/isochronConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/isochronConfig.cmake ${PROJECT_BINARY_DIR}/isochronConfigVersion.cmake
  DESTINATION ${package} COMPONENT library)

# The programs find each other, and what they preload, where they lie.
set(programs ${CMAKE_INSTALL_BINDIR})
set(component program)
if(SKBUILD)
  set(programs ${SKBUILD_SCRIPTS_DIR})
  set(component python)
endif()
foreach(program isochron isochron-worker)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
    install(TARGETS ${program} DESTINATION ${programs} COMPONENT ${component})
  endif()
endforeach()
if(TARGET isochron_interface)
  install(TARGETS isochron_interface LIBRARY DESTINATION ${programs} COMPONENT ${component})
endif()
