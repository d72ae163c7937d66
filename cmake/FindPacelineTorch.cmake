# Finds the two CPU libraries of libtorch and makes the imported target paceline::torch.
#
# Looked for in CMAKE_PREFIX_PATH (an installation of libtorch, or the `torch` folder of a Python
# wheel). libtorch_cpu of a CUDA build needs libcudart and libcupti to be loadable: from the folders its own
# run path names, or those the system's loader knows. Nothing of CUDA is linked.
find_path(PACELINE_TORCH_INCLUDE_DIR ATen/ATen.h)
find_library(PACELINE_TORCH_CPU_LIBRARY torch_cpu)
find_library(PACELINE_C10_LIBRARY c10)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PacelineTorch
  REQUIRED_VARS PACELINE_TORCH_CPU_LIBRARY PACELINE_C10_LIBRARY PACELINE_TORCH_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run ./scripts/setup.sh, or name an installation with -DCMAKE_PREFIX_PATH=/path/to/libtorch")

if(PacelineTorch_FOUND AND NOT TARGET paceline::torch)
  get_filename_component(torch_lib_dir ${PACELINE_TORCH_CPU_LIBRARY} DIRECTORY)
  # Where the linker finds libcudart.so.13 and libcupti.so.13 if the system's loader does not know them.
  set(PACELINE_CUDA_RUNTIME_DIRS "" CACHE STRING "Folders with libcudart and libcupti")
  set(torch_rpath ${torch_lib_dir} ${PACELINE_CUDA_RUNTIME_DIRS})
  add_library(paceline_torch INTERFACE)
  add_library(paceline::torch ALIAS paceline_torch)
  target_include_directories(paceline_torch SYSTEM INTERFACE ${PACELINE_TORCH_INCLUDE_DIR})
  target_link_libraries(paceline_torch INTERFACE
    ${PACELINE_TORCH_CPU_LIBRARY} ${PACELINE_C10_LIBRARY})
  foreach(dir ${torch_rpath})
    target_link_options(paceline_torch INTERFACE "LINKER:-rpath,${dir}" "LINKER:-rpath-link,${dir}")
  endforeach()
endif()
