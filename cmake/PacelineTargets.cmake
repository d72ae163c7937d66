# One line a unit: paceline_library(NAME SOURCES... DEPS...), paceline_test, paceline_bench.

# paceline_library(sampling SOURCES top_k.cc ... DEPS paceline::base)
# Makes paceline_sampling with the alias paceline::sampling. Includes are relative to the root.
# OWN_HEADERS: compiled with options that the precompiled headers of the others do not fit.
function(paceline_library name)
  cmake_parse_arguments(ARG "OWN_HEADERS" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(paceline_${name} STATIC ${ARG_SOURCES})
  add_library(paceline::${name} ALIAS paceline_${name})
  target_include_directories(paceline_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(paceline_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  if(NOT ARG_OWN_HEADERS)
    target_precompile_headers(paceline_${name} REUSE_FROM paceline_headers)
  endif()
endfunction()

# Headers that nearly every library parses, parsed once.
file(WRITE ${CMAKE_BINARY_DIR}/headers.cc "")
add_library(paceline_headers OBJECT ${CMAKE_BINARY_DIR}/headers.cc)
target_precompile_headers(paceline_headers PRIVATE
  <absl/status/statusor.h> <absl/strings/str_cat.h> <algorithm> <memory> <string> <vector>)

# Of the sanitizers only the quick ones, for code that all of them would take minutes to compile.
set(PACELINE_LIGHT_SANITIZE "")
if(PACELINE_SANITIZE)
  list(APPEND PACELINE_LIGHT_SANITIZE -fno-sanitize=undefined)
endif()
if(PACELINE_BUILD_FUZZ)
  list(APPEND PACELINE_LIGHT_SANITIZE -fno-sanitize=fuzzer-no-link)
endif()

# Tests are compiled quickly rather than to run quickly; what they test is not theirs to compile, and
# it is that which is instrumented in full.
set(PACELINE_TEST_OPTIONS -O0 -g0 ${PACELINE_LIGHT_SANITIZE})

# paceline_test(sampling SOURCES sampling/top_k_test.cc ... DEPS paceline::sampling)
# One executable and one CTest entry for a module. The data folder is passed to the tests by a macro.
function(paceline_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  string(REPLACE "." "_" target "${name}")
  add_executable(${target}_test ${ARG_SOURCES})
  target_link_libraries(${target}_test PRIVATE ${ARG_DEPS} paceline::test_support GTest::gmock_main)
  target_compile_options(${target}_test PRIVATE ${PACELINE_TEST_OPTIONS})
  # As paceline_test_headers: headers parsed with other code generation flags cannot be used.
  set_target_properties(${target}_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_precompile_headers(${target}_test REUSE_FROM paceline_test_headers)
  add_test(NAME ${name} COMMAND ${target}_test)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
endfunction()

# paceline_bench(verify_bench.cc DEPS paceline::verify)
function(paceline_bench source)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark_main)
endfunction()
