# What every target of the project shares.
include(GNUInstallDirs)
include(${CMAKE_CURRENT_LIST_DIR}/unity.cmake)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(ISOCHRON_CCACHE ccache)
if(ISOCHRON_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The base directory makes a second clone or build folder hit the same cache entries; the sloppiness is what
  # precompiled headers need. Dependencies come from the compiler's own list, so that a miss costs no preprocessing.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${ISOCHRON_CCACHE})
endif()

# For the targets of this project, not for those that link them.
add_compile_options(
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor
  -Woverloaded-virtual -Wcast-align -Wdouble-promotion -Wformat=2
  # Options are aggregates with defaults: a designated initialiser names what differs and leaves out the rest.
  -Wno-missing-field-initializers
  # Contracted multiply-adds would make decisions depend on the instruction set.
  -ffp-contract=off
  $<$<BOOL:${ISOCHRON_WERROR}>:-Werror>)
if(ISOCHRON_SANITIZE)
  add_compile_options(-fsanitize=${ISOCHRON_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ISOCHRON_SANITIZE})
endif()
if(ISOCHRON_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# isochron_library(NAME [LINK TARGETS...]): static library isochron_NAME, alias isochron::NAME. The folders below add
# their files with target_sources.
function(isochron_library name)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  add_library(isochron_${name} STATIC)
  add_library(isochron::${name} ALIAS isochron_${name})
  if(ISOCHRON_UNITY)
    isochron_unity(isochron_${name} 10)
  endif()
  set_target_properties(isochron_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(isochron_${name} PUBLIC cxx_std_20)
  target_include_directories(isochron_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(isochron_${name} PUBLIC ${arg_LINK})
endfunction()

# Most of the build is tests, and most of that would be optimising code that runs once.
set(ISOCHRON_TEST_OPTIMISATION -O1)
if(ISOCHRON_SANITIZE)
  set(ISOCHRON_TEST_OPTIMISATION -O0)
endif()

# isochron_gtest(NAME [FULL] COMMAND WORDS... [PROPERTIES PAIRS...] [ENVIRONMENT PAIRS...]): a run of a GoogleTest
# program as one test of ctest. Its report tells scripts/test.py which cases ran. FULL: only `make check` has the time.
function(isochron_gtest name)
  cmake_parse_arguments(arg "FULL" "" "COMMAND;PROPERTIES;ENVIRONMENT" ${ARGN})
  list(POP_FRONT arg_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  set(report ${PROJECT_BINARY_DIR}/reports/${name}.xml)
  add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/failed_only.py ${report} ${program} ${arg_COMMAND})
  set(label quick)
  if(arg_FULL)
    set(label full)
  endif()
  # The same random cases in every run: a failure can be repeated.
  set(environment "GTEST_OUTPUT=xml:${report};RC_PARAMS=seed=1;OMP_NUM_THREADS=1")
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS ${label} ENVIRONMENT "${environment};${arg_ENVIRONMENT}")
  if(arg_PROPERTIES)
    set_tests_properties(${name} PROPERTIES ${arg_PROPERTIES})
  endif()
endfunction()

# isochron_script_test(NAME COMMAND [ENVIRONMENT PAIRS...] [PROPERTIES PAIRS...]): a run of several cases as one test of
# ctest, which writes down what has passed (tests/passed_before.py), so that scripts/test.py can repeat the rest alone.
# With PYTHONUNBUFFERED every part of a line is a write of its own, and lines of several processes mix in their pipe.
function(isochron_script_test name)
  cmake_parse_arguments(arg "" "" "COMMAND;ENVIRONMENT;PROPERTIES" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES ${arg_PROPERTIES}
    ENVIRONMENT "ISOCHRON_PASSED=${PROJECT_BINARY_DIR}/reports/${name}.passed;PYTHONUNBUFFERED=;${arg_ENVIRONMENT}")
endfunction()

# isochron_pytest(NAME ARGUMENTS [ENVIRONMENT PAIRS...] [PROPERTIES PAIRS...]): a run of pytest. A test that stands
# still for ten minutes shows where.
function(isochron_pytest name)
  cmake_parse_arguments(arg "" "" "ARGUMENTS;ENVIRONMENT;PROPERTIES" ${ARGN})
  isochron_script_test(${name}
    COMMAND ${ISOCHRON_VENV}/bin/python -m pytest -q -rfEs --durations=15 -p no:cacheprovider
      -o faulthandler_timeout=600 ${arg_ARGUMENTS}
    ENVIRONMENT ${arg_ENVIRONMENT} PROPERTIES ${arg_PROPERTIES})
endfunction()

# isochron_gtest_parts(PROGRAM QUICK FILTERS...): the cases that FILTERS name are for `make test`, the others for `make
# check`. Each starts several processes, and shares the cores with one other test.
function(isochron_gtest_parts program)
  cmake_parse_arguments(arg "" "" "QUICK" ${ARGN})
  list(JOIN arg_QUICK ":" quick)
  isochron_gtest(${program}.quick COMMAND ${program}_test --gtest_filter=${quick} PROPERTIES PROCESSORS 2)
  isochron_gtest(${program}.full FULL COMMAND ${program}_test --gtest_filter=-${quick}
    PROPERTIES PROCESSORS 2 COST 200 TIMEOUT 1200)
endfunction()

# isochron_test_program(NAME [SHARDS N] [FULL FILTERS...]): a GoogleTest program, run in N parts at a time. The cases
# that FILTERS name are for `make check` only. The folders below add their files with isochron_test.
function(isochron_test_program name)
  cmake_parse_arguments(arg "" "SHARDS" "FULL" ${ARGN})
  add_executable(${name}_test)
  target_link_libraries(${name}_test PRIVATE GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_options(${name}_test PRIVATE ${ISOCHRON_TEST_OPTIMISATION} -g1)
  isochron_unity(${name}_test 8)
  set(quick "")
  if(arg_FULL)
    list(JOIN arg_FULL ":" full)
    set(quick --gtest_filter=-${full})
    isochron_gtest(${name}.full FULL COMMAND ${name}_test --gtest_filter=${full})
  endif()
  foreach(shard RANGE 1 ${arg_SHARDS})
    math(EXPR index "${shard} - 1")
    isochron_gtest(${name}.${shard} COMMAND ${name}_test ${quick}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# isochron_paths(TARGET FILES...): these sources of a test program know where the repository and what was built lie.
# Only they do, since a path on the command line makes a source another one for the compiler cache.
function(isochron_paths target)
  set(bin ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  set(definitions
    ISOCHRON_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ISOCHRON_BIN="${bin}" ISOCHRON_PROGRAM="${bin}/isochron"
    ISOCHRON_TEST_DATA="${ISOCHRON_RANKS_DATA}"
    ISOCHRON_MPIRUN="${PROJECT_SOURCE_DIR}/tests/ranks/mpirun.sh ${MPIEXEC_EXECUTABLE}")
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_DEFINITIONS "${definitions}")
endfunction()

# isochron_test(PROGRAM SOURCES FILES... [LINK TARGETS...]): tests that become part of a program.
function(isochron_test program)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  target_sources(${program}_test PRIVATE ${arg_SOURCES})
  target_link_libraries(${program}_test PRIVATE ${arg_LINK})
endfunction()
