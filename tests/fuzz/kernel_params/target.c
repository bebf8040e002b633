/*
 * Gives any bytes to the reader of cubins. This is a libFuzzer target (see `fuzz` beside this
 * file). tests/unit/kernels/test_kernel_params.c includes it too, and replays the seeds and a fixed
 * series of corrupted copies of them.
 *
 * The image ends at the end of its pages, with nothing mapped behind it, and is not writable.
 * libelf is built without a sanitizer, and so a read past the end or a write still faults.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/kernel_params.h"

#define TARGET_BYTES_MAX ((size_t)1 << 20)
#define TARGET_PAGE ((size_t)4096)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/*
 * Aborts unless the reported layout has the properties that every layout has, whatever the image
 * was.
 */
static int target_check_layout(const struct ps_kernel_layout *layout, void *ctx)
{
    uint32_t end = 0;

    (void)ctx;
    if (strlen(layout->name) == 0 || layout->bytes > PS_KERNEL_PARAMS_BYTES_MAX ||
        layout->count > PS_KERNEL_PARAMS_COUNT_MAX)
        abort();
    for (uint32_t i = 0; i < layout->count; i++) {
        if (layout->params[i].offset < end || layout->params[i].size == 0)
            abort();
        end = layout->params[i].offset + layout->params[i].size;
    }
    if (end > layout->bytes)
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t *pages;

    if (bytes > TARGET_BYTES_MAX)
        return 0;
    if (!pages) {
        pages = mmap(NULL, TARGET_BYTES_MAX + TARGET_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED)
            abort();
    }
    uint8_t *image = pages + TARGET_BYTES_MAX - bytes;
    if (mprotect(pages, TARGET_BYTES_MAX, PROT_READ | PROT_WRITE) != 0)
        abort();
    if (bytes > 0)
        memcpy(image, data, bytes);
    if (mprotect(pages, TARGET_BYTES_MAX, PROT_READ) != 0)
        abort();

    int rc = ps_kernel_params_parse(image, bytes, target_check_layout, NULL);
    if (rc != 0 && rc != -EINVAL)
        abort();
    return 0;
}
