/*
 * Part of selftest.cu: variables of the device, which copies and kernels reach. They are the
 * program's, so this is included once.
 */
#ifndef CUDASIM_SELFTEST_VARIABLES_H
#define CUDASIM_SELFTEST_VARIABLES_H

#include "selftest.h"

__device__ float counts[4];
__device__ float first_values[3] = {1.5f, 2.5f, 3.5f};
__device__ float *led_to = first_values + 1;
__constant__ float factors[2] = {2.0f, 4.0f};

KERNEL(use_variables, (float *out, float by), (out, by))
{
    FOR_EACH_ITEM(i, 3)
    {
        VARIABLE(counts)[i] += by;
        out[i] = VARIABLE(first_values)[i] * VARIABLE(factors)[1] + *VARIABLE(led_to);
    }
}

static void variables_are_of_the_device(void)
{
    float *out = new_floats(0.0f, 3);
    float host[4] = {}, given[2] = {10.0f, 20.0f};
    void *place = NULL, *other = NULL;
    size_t size = 0;
    cudaPointerAttributes attributes;
    cudaStream_t stream;

    CHECK(cudaStreamCreate(&stream));
    /* They begin with the image's values, addresses of variables among them. */
    LAUNCH(0, 3, use_variables, out, 1.0f);
    CHECK(cudaMemcpy(host, out, 3 * sizeof(float), cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 8.5f && host[1] == 12.5f && host[2] == 16.5f);
    CHECK(cudaMemcpyFromSymbol(host, counts, sizeof(host)));
    EXPECT(host[0] == 1.0f && host[2] == 1.0f && host[3] == 0.0f);
    /* Copies reach the place that kernels see, at any offset and not beyond. */
    CHECK(cudaMemcpyToSymbol(factors, given, sizeof(given)));
    CHECK(cudaDeviceSynchronize()); /* the default stream may not order the other one */
    CHECK(cudaMemcpyToSymbolAsync(first_values, given, sizeof(float), 2 * sizeof(float), cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    LAUNCH(stream, 3, use_variables, out, 2.0f);
    CHECK(cudaMemcpyAsync(host, out, 3 * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(host[0] == 32.5f && host[1] == 52.5f && host[2] == 202.5f);
    CHECK(cudaMemcpyFromSymbolAsync(host, counts, sizeof(float), sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(host[0] == 3.0f);
    EXPECT_ERROR(cudaMemcpyToSymbol(factors, given, sizeof(given), 4), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaMemcpyToSymbol(factors, given, sizeof(given), 0, cudaMemcpyDeviceToHost),
                 cudaErrorInvalidMemcpyDirection);
    EXPECT_ERROR(cudaMemcpyFromSymbol(host, factors, sizeof(given), 0, cudaMemcpyHostToDevice),
                 cudaErrorInvalidMemcpyDirection);
    /* Its place is device memory that no one can free. */
    CHECK(cudaGetSymbolAddress(&place, counts));
    CHECK(cudaGetSymbolAddress(&other, factors));
    CHECK(cudaGetSymbolSize(&size, counts));
    EXPECT(place != NULL && place != other && place != static_cast<void *>(counts) && size == sizeof(counts));
    CHECK(cudaPointerGetAttributes(&attributes, place));
    EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.devicePointer == place && attributes.device == 0);
    EXPECT_ERROR(cudaFree(place), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaGetSymbolAddress(&place, given), cudaErrorInvalidSymbol);
    EXPECT_ERROR(cudaGetSymbolSize(&size, given), cudaErrorInvalidSymbol);
    CHECK(cudaMemset(place, 0, sizeof(counts)));
    CHECK(cudaMemcpyFromSymbol(host, counts, sizeof(host)));
    EXPECT(host[0] == 0.0f && host[2] == 0.0f);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
}

/* Copy nodes to and from symbols added, changed in the graph, and in the executable one. */
static void nodes_copy_to_and_from_symbols(void)
{
    float given[2] = {5.0f, 6.0f}, later[2] = {7.0f, 8.0f}, back[2] = {}, elsewhere[2] = {};
    cudaGraph_t graph;
    cudaGraphNode_t to, from;
    cudaGraphExec_t executable;

    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNodeToSymbol(&to, graph, NULL, 0, counts, given, sizeof(given), 0, cudaMemcpyHostToDevice));
    CHECK(
        cudaGraphAddMemcpyNodeFromSymbol(&from, graph, &to, 1, back, counts, sizeof(back), 0, cudaMemcpyDeviceToHost));
    EXPECT_ERROR(
        cudaGraphAddMemcpyNodeToSymbol(&to, graph, NULL, 0, counts, given, sizeof(given), 12, cudaMemcpyHostToDevice),
        cudaErrorInvalidValue);
    EXPECT_ERROR(cudaGraphMemcpyNodeSetParamsToSymbol(to, counts, given, 4, 0, cudaMemcpyDeviceToHost),
                 cudaErrorInvalidMemcpyDirection);
    CHECK(cudaGraphMemcpyNodeSetParamsToSymbol(to, counts, given, sizeof(given), 8, cudaMemcpyHostToDevice));
    CHECK(cudaGraphMemcpyNodeSetParamsFromSymbol(from, back, counts, sizeof(back), 8, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, 0));
    CHECK(cudaDeviceSynchronize());
    EXPECT(back[0] == 5.0f && back[1] == 6.0f);
    CHECK(cudaGraphExecMemcpyNodeSetParamsToSymbol(executable, to, counts, later, sizeof(later), 8,
                                                   cudaMemcpyHostToDevice));
    CHECK(cudaGraphExecMemcpyNodeSetParamsFromSymbol(executable, from, elsewhere, counts, sizeof(elsewhere), 8,
                                                     cudaMemcpyDeviceToHost));
    CHECK(cudaGraphLaunch(executable, 0));
    CHECK(cudaDeviceSynchronize());
    EXPECT(back[0] == 5.0f && elsewhere[0] == 7.0f && elsewhere[1] == 8.0f);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
}

#endif
