/*
 * A cubin that is to be linked with others: relocations tell what its code leads to. For
 * tests/unit/kernels/test_kernel_scan.c, like scan.cu.
 */
extern "C" __device__ int elsewhere(int value);
extern "C" __device__ int variable;

extern "C" __global__ void calls_outside(int *x)
{
    x[threadIdx.x] = elsewhere(x[threadIdx.x]);
}

extern "C" __global__ void calls_itself(unsigned long long *x)
{
    x[threadIdx.x] = (unsigned long long)(void *)calls_itself;
}

extern "C" __global__ void variables_outside(int *x)
{
    x[threadIdx.x] = variable;
}

extern "C" __global__ void proved_shared(int *x)
{
    extern __shared__ int dynamic[];
    __shared__ int fixed[7];

    dynamic[threadIdx.x] = x[threadIdx.x];
    fixed[threadIdx.x % 7] = 3;
    __syncthreads();
    x[threadIdx.x] = dynamic[threadIdx.x ^ 1] + fixed[threadIdx.y];
}
