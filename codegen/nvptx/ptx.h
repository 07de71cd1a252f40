/* What all NVIDIA architectures have in common for LLVM. */
#ifndef CODEGEN_NVPTX_PTX_H
#define CODEGEN_NVPTX_PTX_H

#define PTX_MAJOR    "8"
#define PTX_MINOR    "5"
#define PTX_TRIPLE   "nvptx64-nvidia-cuda"
#define PTX_FEATURES "+ptx" PTX_MAJOR PTX_MINOR
#define PTX_GLOBAL   1 /* address spaces */
#define PTX_SHARED   3

#endif
