# Warnings, sanitizers and ccache for every target of the project.
find_program(PACELINE_CCACHE ccache)
if(PACELINE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PACELINE_CCACHE})
endif()

add_compile_options(-Wall -Wextra)
# Row arithmetic must not depend on how an expression was contracted: probabilities of the float and
# the double instance are compared, and draws replay across builds.
add_compile_options(-ffp-contract=off)

# Every library reports its coverage; only the fuzz targets themselves link libFuzzer.
if(PACELINE_BUILD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(PACELINE_SANITIZE)
  add_compile_options(-fsanitize=${PACELINE_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PACELINE_SANITIZE})
endif()
