// The launchers and kernels of the forward pass for the emulation.
#include "kernels/kda/cuda/forward.cu"  // NOLINT(bugprone-suspicious-include): compiled as C++ here
#include "kernels/kda/cuda/workspace.cpp"  // NOLINT(bugprone-suspicious-include)
