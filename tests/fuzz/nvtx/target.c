/*
 * An NVTX range as a program gives it: a byte for the function that begins it, one for the kind of
 * its message, one for the size of its structure, and its name, in words of 4 bytes. Its name
 * arrives as it is, or with question marks for what is no ASCII, and cut.
 */
#include "tests/fuzz/fuzz.h"

#include "shim/tracer/nvtx_layers.c"

static const char *arrived; /* the name that the last range was begun with; a copy, or NULL */
static unsigned ranges;

/* ---- these stand in for other modules ---- */

struct ps_settings ps_settings;

static int take_range(const char *name)
{
    free((char *)(uintptr_t)arrived);
    arrived = name ? strdup(name) : NULL;
    ranges++;
    return 0;
}

int ps_layer_markers_range_push(const void *domain, const char *name)
{
    (void)domain;
    return take_range(name);
}

int ps_layer_markers_range_pop(const void *domain)
{
    (void)domain;
    return 0;
}

uint64_t ps_layer_markers_range_start(const char *name)
{
    return (uint64_t)take_range(name);
}

void ps_layer_markers_range_end(uint64_t id)
{
    (void)id;
}

void ps_layer_markers_open(const struct ps_layer_source *source)
{
    (void)source;
}

enum ps_layers_from ps_layer_markers_from(void)
{
    return PS_LAYERS_NONE;
}

int ps_settings_read(struct ps_settings *out, char *const *envp, ps_settings_problem_fn problem, void *ctx)
{
    (void)out;
    (void)envp;
    (void)problem;
    (void)ctx;
    return 0;
}

/* ---- the target ---- */

/* Returns whether what arrived is the wide name, cut and narrowed. */
static bool is_narrowed(const wchar_t *wide, const char *narrow_text)
{
    size_t i = 0;

    for (; wide[i] && i < 255; i++) {
        bool ascii = wide[i] > 0 && wide[i] < 0x80;
        if (narrow_text[i] != (ascii ? (char)wide[i] : '?'))
            return false;
    }
    return !narrow_text[i];
}

static void check_event(const char *text, const wchar_t *wide, unsigned kind, unsigned size, bool starts)
{
    nvtxEventAttributes_t event = {.size = (uint16_t)size, .messageType = (int32_t)kind};
    struct text *registered = NULL;

    if (kind == NVTX_MESSAGE_TYPE_ASCII) {
        event.message.ascii = text;
    } else if (kind == NVTX_MESSAGE_TYPE_UNICODE) {
        event.message.unicode = wide;
    } else if (kind == NVTX_MESSAGE_TYPE_REGISTERED) {
        registered = (struct text *)(void *)(starts ? register_a(NULL, text) : register_w(NULL, wide));
        event.message.registered = (nvtxStringHandle_t)(void *)registered;
    }
    if (starts)
        domain_start_ex(NULL, &event);
    else
        domain_push_ex(NULL, &event);
    /* A structure of an older NVTX, which ends before the message, has none. */
    bool is_told = size >= offsetof(nvtxEventAttributes_t, message) + sizeof event.message &&
                   kind >= NVTX_MESSAGE_TYPE_ASCII && kind <= NVTX_MESSAGE_TYPE_REGISTERED;
    bool is_wide = kind == NVTX_MESSAGE_TYPE_UNICODE || (kind == NVTX_MESSAGE_TYPE_REGISTERED && !starts);
    fuzz_require((arrived != NULL) == is_told);
    if (is_told)
        fuzz_require(is_wide ? is_narrowed(wide, arrived) : !strcmp(text, arrived));
    free(registered);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    const unsigned how = fuzz_u8(&in), kind = fuzz_u8(&in) % 8, size = fuzz_u8(&in);
    wchar_t *wide = fuzz_allocate((in.left / sizeof *wide + 1) * sizeof *wide);

    memset(wide, 0, (in.left / sizeof *wide + 1) * sizeof *wide);
    if (in.left)
        memcpy(wide, in.at, in.left / sizeof *wide * sizeof *wide);
    char *text = fuzz_text(&in, '\0');
    ranges = 0;
    if (how & 1) {
        check_event(text, wide, kind, how & 4 ? (unsigned)sizeof(nvtxEventAttributes_t) : size, how & 2);
    } else if (how & 2) {
        push_a(text);
        fuzz_require(!strcmp(text, arrived));
    } else {
        start_w(wide);
        fuzz_require(is_narrowed(wide, arrived));
    }
    fuzz_require(ranges == 1);
    free(text);
    free(wide);
    return 0;
}
