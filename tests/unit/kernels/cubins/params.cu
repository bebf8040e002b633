/*
 * Kernels whose parameter layouts are known. The seeds are made of them, and
 * tests/unit/kernels/test_kernel_params.c has their layouts.
 */

struct pair {
    char tag;
    double *p;
    short s;
};

struct beyond_4_kb { /* such parameters need a newer record */
    float *p[600];
    int n;
};

struct __align__(64) wide_alignment
{ /* the parameter buffer itself starts 16 bytes off in the constant bank */
    unsigned long long w[16];
};

extern "C" __global__ void none() {}
extern "C" __global__ void one(float *x)
{
    *x = 1;
}
extern "C" __global__ void unused(float *a, long b, float *c) {}
extern "C" __global__ void many(float *a, int b, char c, double d, short e, float *f)
{
    *a = b + c + d + e + *f;
}
extern "C" __global__ void by_value(int n, pair p, float *y)
{
    *y = n + *p.p + p.s + p.tag;
}
extern "C" __global__ void large(int n, beyond_4_kb b, float *y)
{
    *y = *b.p[n];
}
extern "C" __global__ void aligned(int n, const __grid_constant__ wide_alignment m, float *y)
{
    *y = m.w[n];
}

template <typename T> __global__ void templated(T *x, int n)
{
    x[n] = T(n);
}
template __global__ void templated<float>(float *, int);
template __global__ void templated<double>(double *, int);
