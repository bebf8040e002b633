/*
 * Finds the words of a kernel's parameters that may be addresses in a range, mostly the span
 * reservation. It looks at every 8-byte word at a multiple of 8 from a parameter's start. Pointers
 * inside a by-value structure are aligned so. The caller passes a pointer to each parameter, or one
 * packed buffer (CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE, as cuBLAS does).
 *
 * Any thread, no lock; inside Penstock. The functions are inline, and callers know `visit` at
 * compile time, because this runs at every launch.
 */
#ifndef PS_KERNEL_WORDS_H
#define PS_KERNEL_WORDS_H

#include <cuda.h>
#include <stdbool.h>
#include <string.h>

#include "cuda/address_map.h"
#include "kernels/grid.h"
#include "kernels/layouts.h"

/*
 * Receives a word. `bytes`: the size of its parameter, or of the packed buffer. A pointer has 8
 * bytes, a structure more.
 */
typedef void ps_word_fn(void *ctx, CUdeviceptr word, size_t bytes);

#define PS_ALWAYS_INLINE inline __attribute__((always_inline))

/*
 * Visits the words in `size` bytes at `bytes`. The range's bounds are arguments, because bounds in
 * memory would be read again for each word.
 */
static PS_ALWAYS_INLINE void ps_words_of(CUdeviceptr base, uint64_t extent, const unsigned char *bytes, size_t size,
                                         ps_word_fn *visit, void *ctx)
{
    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        if (word - base < extent)
            visit(ctx, word, size);
    }
}

/* Visits the words of a packed buffer. Returns false if the buffer is missing. */
static PS_ALWAYS_INLINE bool ps_packed_words(CUdeviceptr base, uint64_t extent, void **extra, ps_word_fn *visit,
                                             void *ctx)
{
    const unsigned char *buffer = NULL;
    const size_t *size = NULL;

    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = extra[i + 1];
    }
    if (!buffer || !size)
        return false;
    ps_words_of(base, extent, buffer, *size, visit, ctx);
    return true;
}

/* Visits the words of the parameters in [from, to). */
static PS_ALWAYS_INLINE void ps_words_of_parameters(CUdeviceptr base, uint64_t extent, const struct ps_layout *layout,
                                                    void **parameters, uint32_t from, uint32_t to, ps_word_fn *visit,
                                                    void *ctx)
{
    for (uint32_t i = from; i < to; i++)
        if (parameters[i])
            ps_words_of(base, extent, parameters[i], layout->size[i], visit, ctx);
}

/*
 * Visits all words of a launch. `layout`: the kernel's (ps_layout_of), or NULL. Returns false if
 * the words can't be read because the kernel's layout is unknown.
 */
static PS_ALWAYS_INLINE bool ps_kernel_words_between(CUdeviceptr base, uint64_t extent, const struct ps_layout *layout,
                                                     void **parameters, void **extra, ps_word_fn *visit, void *ctx)
{
    if (!parameters && extra && ps_packed_words(base, extent, extra, visit, ctx))
        return true;
    if (!layout || (!parameters && layout->count))
        return false;
    ps_words_of_parameters(base, extent, layout, parameters, 0, layout->count, visit, ctx);
    return true;
}

/* Visits the first `used` addresses of a list. They count as pointer parameters. */
static PS_ALWAYS_INLINE void ps_words_of_list(CUdeviceptr base, uint64_t extent, const unsigned char *list,
                                              uint32_t used, ps_word_fn *visit, void *ctx)
{
    for (uint32_t i = 0; i < used; i++)
        ps_words_of(base, extent, list + 8 * i, 8, visit, ctx);
}

/*
 * Visits the words in the span reservation of a launch with lists of tensors. It leaves out the
 * tensors behind those in use. Returns false if it has no such lists, or has them filled in
 * differently.
 */
static PS_ALWAYS_INLINE bool ps_kernel_words_of_lists(const struct ps_layout *layout, void **parameters,
                                                      struct ps_grid grid, ps_word_fn *visit, void *ctx)
{
    const struct ps_torch_tensor_lists *where = &layout->tensor_lists;
    const unsigned char *lists = parameters ? parameters[where->parameter] : NULL;
    const uint32_t used = lists ? ps_torch_tensor_lists_used(where, lists, grid) : 0;
    const CUdeviceptr base = ps_reservation.base;
    const uint64_t extent = ps_reservation.reserved;

    if (!used)
        return false;
    ps_words_of_parameters(base, extent, layout, parameters, 0, where->parameter, visit, ctx);
    for (uint32_t i = 0; i < where->lists; i++)
        ps_words_of_list(base, extent, lists + 8ul * i * where->capacity, used, visit, ctx);
    if (where->states)
        ps_words_of_list(base, extent, lists + where->states, used, visit, ctx);
    ps_words_of_parameters(base, extent, layout, parameters, where->parameter + 1, layout->count, visit, ctx);
    return true;
}

/* Visits a launch's words in the span reservation. Returns like ps_kernel_words_between. */
static PS_ALWAYS_INLINE bool ps_kernel_words(const struct ps_layout *layout, void **parameters, void **extra,
                                             ps_word_fn *visit, void *ctx)
{
    return ps_kernel_words_between(ps_reservation.base, ps_reservation.reserved, layout, parameters, extra, visit, ctx);
}

#endif
