// Marks functions that run on the host and, in device sources, on the GPU too.
#pragma once

#ifdef __CUDACC__
#define LH_HOST_DEVICE __host__ __device__
#else
#define LH_HOST_DEVICE
#endif
