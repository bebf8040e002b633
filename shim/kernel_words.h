/*
 * The words of a kernel's parameters that may be addresses in a range, the span reservation first of all: every 8-byte word at a multiple of 8 from a
 * parameter's start that lies in it. Pointers inside a by-value structure are aligned so. Parameters come as pointers to each, or packed by the caller
 * (CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE, as cuBLAS does).
 *
 * Any thread, no lock; inside Penstock. Inline, with `visit` known where it is called: this runs at every launch.
 */
#ifndef PS_KERNEL_WORDS_H
#define PS_KERNEL_WORDS_H

#include <cuda.h>
#include <stdbool.h>
#include <string.h>

#include "layouts.h"
#include "registry.h"

/* `bytes` are the parameter's that the word is in, or of all of them where they come packed: 8 of a pointer, more of a structure. */
typedef void ps_word_fn(void *ctx, CUdeviceptr word, size_t bytes);

#define PS_ALWAYS_INLINE inline __attribute__((always_inline))

/* The range's bounds come as arguments: read from memory they would be read again for each word. */
static PS_ALWAYS_INLINE void ps_words_of(CUdeviceptr base, uint64_t extent, const unsigned char *bytes, size_t size, ps_word_fn *visit,
                                         void *ctx)
{
    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        if (word - base < extent)
            visit(ctx, word, size);
    }
}

/* False if the buffer is not there. */
static PS_ALWAYS_INLINE bool ps_packed_words(CUdeviceptr base, uint64_t extent, void **extra, ps_word_fn *visit, void *ctx)
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

/* `layout`: the kernel's (ps_layout_of), or NULL. False: they can't be read; nobody knows the kernel's layout. */
static PS_ALWAYS_INLINE bool ps_kernel_words_between(CUdeviceptr base, uint64_t extent, const struct ps_layout *layout, void **parameters,
                                                     void **extra, ps_word_fn *visit, void *ctx)
{
    if (!parameters && extra && ps_packed_words(base, extent, extra, visit, ctx))
        return true;
    if (!layout || (!parameters && layout->count))
        return false;
    for (uint32_t i = 0; i < layout->count; i++)
        if (parameters[i])
            ps_words_of(base, extent, parameters[i], layout->size[i], visit, ctx);
    return true;
}

/* The first so many addresses of a list. */
static PS_ALWAYS_INLINE void ps_words_of_list(const unsigned char *list, uint32_t used, ps_word_fn *visit, void *ctx)
{
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word;
        memcpy(&word, list + 8 * i, sizeof word);
        if (word - ps_reservation.base < ps_reservation.reserved)
            visit(ctx, word, sizeof word);
    }
}

/* Those in the span reservation, of a launch of so many blocks that is given lists of tensors: what stands behind those that it uses is left out. False: it isn't. */
static PS_ALWAYS_INLINE bool ps_kernel_words_of_lists(const struct ps_layout *layout, void **parameters, uint64_t blocks, ps_word_fn *visit,
                                                      void *ctx)
{
    const struct ps_tensor_lists *where = &layout->tensor_lists;
    const uint32_t used = parameters && parameters[0] ? ps_tensor_lists_used(where, parameters[0], blocks) : 0;

    if (!used)
        return false;
    for (uint32_t list = 0; list < where->lists; list++)
        ps_words_of_list((const unsigned char *)parameters[0] + (size_t)list * where->capacity * 8, used, visit, ctx);
    if (where->states)
        ps_words_of_list((const unsigned char *)parameters[0] + where->states, used, visit, ctx);
    for (uint32_t i = 1; i < layout->count; i++)
        if (parameters[i])
            ps_words_of(ps_reservation.base, ps_reservation.reserved, parameters[i], layout->size[i], visit, ctx);
    return true;
}

/* Those in the span reservation. */
static PS_ALWAYS_INLINE bool ps_kernel_words(const struct ps_layout *layout, void **parameters, void **extra, ps_word_fn *visit, void *ctx)
{
    return ps_kernel_words_between(ps_reservation.base, ps_reservation.reserved, layout, parameters, extra, visit, ctx);
}

#endif
