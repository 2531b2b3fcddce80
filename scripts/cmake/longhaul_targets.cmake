# How a folder becomes a target. One call a folder, so that a folder's CMakeLists.txt reads as a table.
#
#   lh_add_library(base SOURCES error.cpp DEPENDS fmt::fmt TESTS error_test.cpp)
#
# makes the static library longhaul::base and the test program base_test. Dependencies are public and must agree with
# the table of lib/ARCHITECTURE.md. A folder with headers only may leave SOURCES out. CUDA_SOURCES and CUDA_DEPENDS belong
# to builds with the CUDA backend, NO_CUDA_SOURCES (what stands in for them) to the others.

# -Wno-restrict: GCC 12 warns falsely where short strings are joined (GCC bug 105651).
add_library(longhaul_options INTERFACE)
target_include_directories(longhaul_options INTERFACE ${PROJECT_SOURCE_DIR}/lib ${PROJECT_SOURCE_DIR})
target_compile_options(longhaul_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers -Wno-restrict -fopenmp-simd>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LONGHAUL_WERROR}>>:-Werror -Wno-error=array-bounds -Wno-error=stringop-overflow -Wno-error=maybe-uninitialized>)
# The three that stay warnings come from the optimizer's view of a program, and each release of GCC is wrong about others.
# -ffp-contract=off: a value must not depend on where the compiler fuses a multiply and an add, or equal code in two
# places would differ in the last bit and bitwise tests would depend on inlining.
target_compile_options(longhaul_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND LONGHAUL_CPU_ARCH)
  target_compile_options(longhaul_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${LONGHAUL_CPU_ARCH}>)
endif()
if(LONGHAUL_SANITIZE)
  target_compile_options(longhaul_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LONGHAUL_SANITIZE} -fno-omit-frame-pointer -g>)
  target_link_options(longhaul_options INTERFACE -fsanitize=${LONGHAUL_SANITIZE})
endif()
if(LONGHAUL_HAS_CUDA)
  # cuBLASLt takes tenths of a second to load; programs that use no GPU should not pay for it.
  target_link_options(longhaul_options INTERFACE -Wl,--as-needed)
  target_compile_definitions(longhaul_options INTERFACE LH_HAS_CUDA=1)
  # Constexpr functions of the host (Philox) may be called on the device. Warning 20012 is about the defaulted functions of
  # aggregates and says nothing.
  target_compile_options(longhaul_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-diag-suppress=20012;-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${LONGHAUL_WERROR}>>:-Werror=all-warnings>")
endif()

# One BLAS thread a rank: ranks are the parallelism of the CPU backend, and of the tests.
set(LONGHAUL_TEST_ENVIRONMENT
  "OMP_NUM_THREADS=1;OPENBLAS_NUM_THREADS=1;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_mpi_yield_when_idle=1;OMPI_MCA_btl_vader_single_copy_mechanism=none")

function(lh_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;CUDA_SOURCES;NO_CUDA_SOURCES;DEPENDS;PRIVATE;CUDA_DEPENDS;TESTS;TEST_DEPENDS" ${ARGN})
  set(sources ${ARG_SOURCES})
  if(LONGHAUL_HAS_CUDA)
    list(APPEND sources ${ARG_CUDA_SOURCES})
    list(APPEND ARG_PRIVATE ${ARG_CUDA_DEPENDS})
  else()
    list(APPEND sources ${ARG_NO_CUDA_SOURCES})
  endif()
  if(sources)
    add_library(longhaul_${name} STATIC ${sources})
    target_link_libraries(longhaul_${name} PUBLIC longhaul_options ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE})
  else()
    add_library(longhaul_${name} INTERFACE)
    target_link_libraries(longhaul_${name} INTERFACE longhaul_options ${ARG_DEPENDS})
  endif()
  add_library(longhaul::${name} ALIAS longhaul_${name})
  if(LONGHAUL_TESTS AND ARG_TESTS)
    lh_add_test(${name}_test SOURCES ${ARG_TESTS} DEPENDS longhaul::${name} ${ARG_TEST_DEPENDS})
  endif()
endfunction()

# A serial Catch2 program; each TEST_CASE becomes a CTest entry.
function(lh_add_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE longhaul_options ${ARG_DEPENDS} Catch2::Catch2WithMain)
  target_compile_definitions(${name} PRIVATE LH_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LH_BINARY_DIR="${PROJECT_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  catch_discover_tests(${name} TEST_PREFIX "${name}: " DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 4 ENVIRONMENT "${LONGHAUL_TEST_ENVIRONMENT}")
endfunction()

# A test that runs COMMAND; the usual environment and a time limit are set.
function(lh_add_command_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PROCESSORS" "COMMAND;LABELS" ${ARGN})
  add_test(NAME ${name} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_PROCESSORS} SKIP_RETURN_CODE 4
    LABELS "${ARG_LABELS}" ENVIRONMENT "${LONGHAUL_TEST_ENVIRONMENT}")
endfunction()

# One CTest entry for the tests of a rank program that carry TAG, on NP ranks.
function(lh_add_rank_test program tag np)
  add_test(NAME "${program}: ${tag} on ${np} ranks"
    COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${np} $<TARGET_FILE:${program}> "[${tag}]")
  set_tests_properties("${program}: ${tag} on ${np} ranks" PROPERTIES PROCESSORS ${np} LABELS mpi TIMEOUT 300
    SKIP_RETURN_CODE 4 ENVIRONMENT "${LONGHAUL_TEST_ENVIRONMENT}")
endfunction()

function(lh_add_app name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE longhaul_options ${ARG_DEPENDS} CLI11::CLI11)
  install(TARGETS ${name} RUNTIME DESTINATION bin)
endfunction()

# One operation: kernels/<name>/ becomes the library longhaul_kernel_<name>, part of longhaul::kernels.
function(lh_add_kernel name)
  cmake_parse_arguments(ARG "" "" "SOURCES;CUDA_SOURCES;DEPENDS;TESTS;TEST_DEPENDS" ${ARGN})
  lh_add_library(kernel_${name} SOURCES ${ARG_SOURCES} CUDA_SOURCES ${ARG_CUDA_SOURCES} CUDA_DEPENDS CUDA::cudart_static
    DEPENDS longhaul::tensor longhaul::kernel_gpu ${ARG_DEPENDS} TESTS ${ARG_TESTS}
    TEST_DEPENDS longhaul::test_support ${ARG_TEST_DEPENDS})
  target_link_libraries(longhaul_kernels INTERFACE longhaul_kernel_${name})
endfunction()
