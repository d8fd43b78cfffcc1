# What every target of the project shares.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(ISOCHRON_CCACHE ccache)
if(ISOCHRON_CCACHE)
  # The base directory makes a second clone or build folder hit the same cache entries.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${ISOCHRON_CCACHE})
endif()

add_library(isochron_flags INTERFACE)
target_include_directories(isochron_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(isochron_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor
  -Woverloaded-virtual -Wcast-align -Wdouble-promotion -Wformat=2
  # Options are aggregates with defaults: a designated initialiser names what differs and leaves out the rest.
  -Wno-missing-field-initializers
  # Contracted multiply-adds would make decisions depend on the instruction set.
  -ffp-contract=off
  $<$<BOOL:${ISOCHRON_WERROR}>:-Werror>)
if(ISOCHRON_SANITIZE)
  target_compile_options(isochron_flags INTERFACE -fsanitize=${ISOCHRON_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(isochron_flags INTERFACE -fsanitize=${ISOCHRON_SANITIZE})
endif()

# isochron_library(NAME [LINK TARGETS...]): static library isochron_NAME, alias isochron::NAME. The folders below add
# their files with target_sources.
function(isochron_library name)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  add_library(isochron_${name} STATIC)
  add_library(isochron::${name} ALIAS isochron_${name})
  target_link_libraries(isochron_${name} PUBLIC isochron_flags ${arg_LINK})
endfunction()

# Most of the build is tests, and most of that would be optimising code that runs once.
set(ISOCHRON_TEST_OPTIMISATION -O1)
if(ISOCHRON_SANITIZE)
  set(ISOCHRON_TEST_OPTIMISATION -O0)
endif()

# isochron_test(NAME SOURCES FILES... LINK TARGETS...): one GoogleTest program, its cases registered with ctest.
function(isochron_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name}_test ${arg_SOURCES})
  target_link_libraries(${name}_test PRIVATE ${arg_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_options(${name}_test PRIVATE ${ISOCHRON_TEST_OPTIMISATION} -g1)
  target_compile_definitions(${name}_test PRIVATE ISOCHRON_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 
    # The same random cases in every run: a failure can be repeated.
    PROPERTIES TIMEOUT 600 ENVIRONMENT RC_PARAMS=seed=1)
endfunction()
