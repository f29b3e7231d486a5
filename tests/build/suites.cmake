# Included by ctest: one test for each suite of a GoogleTest program. A process for each of three thousand
# cases would spend most of its time on loading LibTorch. ${program}, ${prefix}, ${time_limit} and
# ${properties} come from the file that includes this one (headroom_test() in tests/CMakeLists.txt).
set(list "${program}.suites")
if(NOT EXISTS "${program}")
  add_test("${prefix}NOT_BUILT" "${program}")
  return()
endif()
if("${program}" IS_NEWER_THAN "${list}" OR "${CMAKE_CURRENT_LIST_FILE}" IS_NEWER_THAN "${list}")
  execute_process(COMMAND "${program}" --gtest_list_tests OUTPUT_VARIABLE listed
    RESULT_VARIABLE code ERROR_VARIABLE why)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${program} --gtest_list_tests ended with ${code}: ${why}")
  endif()
  # A type or a value after a name may have brackets and semicolons, which mean something in CMake's lists.
  string(REGEX REPLACE " *#[^\n]*" "" listed "${listed}")
  file(WRITE "${list}" "${listed}")
endif()
# A suite's line is `Name.`; its cases' lines begin with a space.
file(STRINGS "${list}" lines)
set(suite "")
set(cases 0)
foreach(line IN LISTS lines ITEMS "End.")
  if(line MATCHES "^ ")
    math(EXPR cases "${cases} + 1")
  elseif(line MATCHES "^([A-Za-z0-9_/]+)\\.$")
    set(next "${CMAKE_MATCH_1}")
    if(cases)
      add_test("${prefix}${suite}" "${program}" "--gtest_filter=${suite}.*" --gtest_brief=1)
      math(EXPR limit "${time_limit} + 10 * ${cases}")
      # Long suites begin first.
      set_tests_properties("${prefix}${suite}" PROPERTIES TIMEOUT ${limit} COST ${cases} ${properties})
    endif()
    set(suite "${next}")
    set(cases 0)
  endif()
endforeach()
