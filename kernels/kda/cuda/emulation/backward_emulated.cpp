// The launchers and kernels of the backward pass for the emulation.
#include "kernels/kda/cuda/backward.cu"  // NOLINT(bugprone-suspicious-include): compiled as C++ here
