#include "kernels/known_kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Templates of namespace at::native, or of an unnamed namespace in it. */
static const char *const keep_none[] = {
    "vectorized_elementwise_kernel",
    "vectorized_templated_elementwise_kernel",
    "unrolled_elementwise_kernel",
    "elementwise_kernel",
    "elementwise_kernel_with_index",
    "multi_tensor_apply_kernel",
    "lpnorm_cleanup",
    "reduce_kernel",
    "distribution_elementwise_grid_stride_kernel",
    "CatArrayBatchedCopy",
    "CatArrayBatchedCopy_contig",
    "CatArrayBatchedCopy_vectorized",
    "CatArrayBatchedCopy_alignedK_contig",
    "CatArrayBatchedCopy_aligned16_contig", /* before 2.8 */
};

/*
 * Arithmetic of type long can make tables: torch.full((1,), address), torch.arange(n) * stride +
 * address and the like. The address there is a number, not a tensor. All ranges count, because a
 * kernel's name does not show the type of a range.
 */
static const char *const of_words[] = {
    "11FillFunctorIlE",  "22CUDAFunctorOnSelf_addIlE", "23CUDAFunctorOnOther_addIlE", "15CUDAFunctor_addIlE",
    "13AUnaryFunctorIl", "13BUnaryFunctorIl",          "13BinaryFunctorIl",           "15arange_cuda_out",
};

static bool is_of_words(const char *name)
{
    for (size_t i = 0; i < sizeof of_words / sizeof *of_words; i++)
        if (strstr(name, of_words[i]))
            return true;
    return false;
}

/* A part of a nested name in the Itanium C++ ABI: its length in digits, then its characters. */
struct part {
    const char *text;
    size_t bytes;
};

static bool next_part(const char **at, struct part *part)
{
    char *text;

    if (**at < '1' || **at > '9')
        return false;
    unsigned long bytes = strtoul(*at, &text, 10);
    if (bytes > strlen(text))
        return false;
    *part = (struct part){text, bytes};
    *at = text + bytes;
    return true;
}

static bool is(const struct part *part, const char *name)
{
    return strlen(name) == part->bytes && !memcmp(part->text, name, part->bytes);
}

static bool keeps_no_address(const char *name)
{
    struct part part = {0};
    unsigned parts = 0;

    if (strncmp(name, "_ZN", 3) != 0)
        return false;
    for (const char *at = name + 3; next_part(&at, &part); parts++)
        if ((parts == 0 && !is(&part, "at")) || (parts == 1 && !is(&part, "native")))
            return false;
    if (parts < 3)
        return false;
    if (is_of_words(name))
        return false;
    for (size_t i = 0; i < sizeof keep_none / sizeof *keep_none; i++)
        if (is(&part, keep_none[i])) /* the last part is the function's own name */
            return true;
    return false;
}

static bool is_of_nccl(const char *name)
{
    if (strncmp(name, "_Z", 2) == 0)
        name += 2 + strspn(name + 2, "0123456789");
    return strncmp(name, "ncclDevKernel", 13) == 0 || strncmp(name, "ncclKernel", 10) == 0;
}

enum ps_known_kernel ps_kernel_known(const char *name)
{
    if (!name)
        return PS_KERNEL_UNKNOWN;
    return keeps_no_address(name) ? PS_KERNEL_KEEPS_NO_ADDRESS : is_of_nccl(name) ? PS_KERNEL_NCCL : PS_KERNEL_UNKNOWN;
}
