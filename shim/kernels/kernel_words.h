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

/* The range of possible addresses. */
#define PS_WORDS_LOWEST (1ull << 16)
/* Device memory lies above this, in the driver's address spaces of 64-bit processes. */
#define PS_WORDS_LOWEST_DEVICE (1ull << 32)

#define PS_WORDS_HIGHEST (1ull << 48)

/*
 * Host memory of 64-bit processes lies above this, and pointers are aligned. Most other words of a
 * structure fail this test: numbers, and two numbers of four bytes.
 */
#define PS_LOWEST_IN_STRUCTURE (1ull << 40)

static PS_ALWAYS_INLINE bool ps_may_be_in_structure(CUdeviceptr word)
{
    return word >= PS_LOWEST_IN_STRUCTURE && word % sizeof(void *) == 0;
}

/*
 * The words of a launch outside the range. Callers keep it in a local variable of which only the
 * functions here take the address, so that it stays in registers.
 */
struct ps_other_words {
    size_t count;    /* those that may be addresses */
    uint64_t digest; /* of all; one in 2^64 launches with other words has the same */
};

/* Mixed by itself, so that two words whose changes are related don't make up for each other. */
static PS_ALWAYS_INLINE uint64_t ps_mixed_word(uint64_t word)
{
    const uint64_t mixed = word * 0x9E3779B97F4A7C15u;

    return (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93u;
}

static PS_ALWAYS_INLINE void ps_other_word(struct ps_other_words *others, CUdeviceptr word)
{
    others->count += word - PS_WORDS_LOWEST < PS_WORDS_HIGHEST - PS_WORDS_LOWEST;
    others->digest = (others->digest << 9 | others->digest >> 55) + ps_mixed_word(word);
}

/*
 * Visits the words in `size` bytes at `bytes`. The range's bounds are arguments, because bounds in
 * memory would be read again for each word. `others` (may be NULL) gets the words outside the
 * range.
 */
static PS_ALWAYS_INLINE void ps_words_of(CUdeviceptr base, uint64_t extent, const unsigned char *bytes, size_t size,
                                         ps_word_fn *visit, void *ctx, struct ps_other_words *others)
{
    uint64_t word;

    if (size == sizeof word) { /* most parameters: no loop */
        memcpy(&word, bytes, sizeof word);
        if (word - base < extent)
            visit(ctx, word, sizeof word);
        else if (others)
            ps_other_word(others, word);
        return;
    }
    for (size_t at = 0; at + 8 <= size; at += 8) {
        memcpy(&word, bytes + at, sizeof word);
        if (word - base < extent)
            visit(ctx, word, size);
        else if (others)
            ps_other_word(others, word);
    }
}

/* Visits the words of a packed buffer. Returns false if the buffer is missing. */
static PS_ALWAYS_INLINE bool ps_packed_words(CUdeviceptr base, uint64_t extent, void **extra, ps_word_fn *visit,
                                             void *ctx, struct ps_other_words *others)
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
    ps_words_of(base, extent, buffer, *size, visit, ctx, others);
    return true;
}

/* Visits the words of the parameters in [from, to). */
static PS_ALWAYS_INLINE void ps_words_of_parameters(CUdeviceptr base, uint64_t extent, const struct ps_layout *layout,
                                                    void **parameters, uint32_t from, uint32_t to, ps_word_fn *visit,
                                                    void *ctx, struct ps_other_words *others)
{
    for (uint32_t i = from; i < to; i++)
        if (parameters[i])
            ps_words_of(base, extent, parameters[i], layout->size[i], visit, ctx, others);
}

/*
 * Visits all words of a launch, and notes others as ps_words_of does. `layout`: the kernel's
 * (ps_layout_of), or NULL. Returns false if the words can't be read because the kernel's layout is
 * unknown.
 */
static PS_ALWAYS_INLINE bool ps_kernel_words_counting(CUdeviceptr base, uint64_t extent, const struct ps_layout *layout,
                                                      void **parameters, void **extra, ps_word_fn *visit, void *ctx,
                                                      struct ps_other_words *others)
{
    if (!parameters && extra && ps_packed_words(base, extent, extra, visit, ctx, others))
        return true;
    if (!layout || (!parameters && layout->count))
        return false;
    ps_words_of_parameters(base, extent, layout, parameters, 0, layout->count, visit, ctx, others);
    return true;
}

static PS_ALWAYS_INLINE bool ps_kernel_words_between(CUdeviceptr base, uint64_t extent, const struct ps_layout *layout,
                                                     void **parameters, void **extra, ps_word_fn *visit, void *ctx)
{
    return ps_kernel_words_counting(base, extent, layout, parameters, extra, visit, ctx, NULL);
}

/* Visits the first `used` addresses of a list. They count as pointer parameters. */
static PS_ALWAYS_INLINE void ps_words_of_list(CUdeviceptr base, uint64_t extent, const unsigned char *list,
                                              uint32_t used, ps_word_fn *visit, void *ctx)
{
    for (uint32_t i = 0; i < used; i++)
        ps_words_of(base, extent, list + 8 * i, 8, visit, ctx, NULL);
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
    ps_words_of_parameters(base, extent, layout, parameters, 0, where->parameter, visit, ctx, NULL);
    for (uint32_t i = 0; i < where->lists; i++)
        ps_words_of_list(base, extent, lists + 8ul * i * where->capacity, used, visit, ctx);
    if (where->states)
        ps_words_of_list(base, extent, lists + where->states, used, visit, ctx);
    ps_words_of_parameters(base, extent, layout, parameters, where->parameter + 1, layout->count, visit, ctx, NULL);
    return true;
}

/*
 * Visits a launch's words in the span reservation, and puts in `others` (may be NULL) those that
 * may be other addresses. Returns like ps_kernel_words_between.
 */
static PS_ALWAYS_INLINE bool ps_kernel_words(const struct ps_layout *layout, void **parameters, void **extra,
                                             ps_word_fn *visit, void *ctx, struct ps_other_words *others)
{
    return ps_kernel_words_counting(ps_reservation.base, ps_reservation.reserved, layout, parameters, extra, visit, ctx,
                                    others);
}

#endif
