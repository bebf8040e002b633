/* A seed that is small enough for the fuzzer to make progress. */
extern "C" __global__ void one(float *x, int n)
{
    x[n] = 1;
}
