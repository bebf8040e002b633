#include "tracer/nvtx_layers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define NVTX_NO_IMPL /* only types and numbers of NVTX's tables, no copy of NVTX */
#include <nvtx3/nvToolsExt.h>

#include "base/log.h"
#include "base/real_dlsym.h"
#include "base/secure_execution.h"
#include "base/settings.h"
#include "plan/layer_markers.h"

extern char **environ;

static const char injection[] = "NVTX_INJECTION64_PATH";

/* Returns the path of this library, or NULL. The caller frees it. */
static char *own_path(void)
{
    Dl_info info;

    return dladdr(injection, &info) && info.dli_fname ? realpath(info.dli_fname, NULL) : NULL;
}

/*
 * NVTX reads the variable at its first call, which may come before the first CUDA call. So the
 * constructor is the last moment to set it.
 */
__attribute__((constructor)) static void be_the_injection_library(void)
{
    const char *layers = getenv("PENSTOCK_LAYERS");
    const char *disable = getenv("PENSTOCK_DISABLE");

    if (ps_is_secure_execution() || !layers || strncmp(layers, "nvtx:", 5) || (disable && !strcmp(disable, "1")) ||
        getenv(injection))
        return;
    char *path = own_path();
    /* Penstock exports a setenv of its own; this calls the real one. */
    if (path)
        ((int (*)(const char *, const char *, int))ps_real_dlsym(RTLD_NEXT, "setenv"))(injection, path, 1);
    free(path);
}

bool ps_nvtx_layers_is_others(void)
{
    const char *named = getenv(injection);

    if (!named || !*named)
        return false;
    char *theirs = realpath(named, NULL), *ours = own_path();
    bool is_ours = theirs && ours && !strcmp(theirs, ours);
    free(theirs);
    free(ours);
    return !is_ours;
}

void ps_nvtx_layers_check(void)
{
    const char *named = getenv(injection);

    if (ps_settings.layers.from != PS_LAYERS_NVTX)
        return;
    char *path = own_path();
    if (!named || !path || strcmp(named, path) != 0)
        ps_log_warn(TRACER,
                    "PENSTOCK_LAYERS=nvtx:%s finds no layers: %s=%s receives the program's "
                    "NVTX ranges; unset that variable, or set PENSTOCK_LAYERS=auto",
                    ps_settings.layers.pattern, injection, named ? named : "");
    free(path);
}

/* ---- functions that NVTX calls instead of its own, which do nothing ---- */

/*
 * A domain or a registered string. NVTX hands the pointer back later. There are few of them, and
 * they are never freed.
 */
struct text {
    char text[1]; /* allocated as long as the text is */
};

#define WIDE_MAX 256 /* the longest part of a wide name that is used, in characters */

/* Copies a wide name. Characters beyond ASCII become question marks, which ? and * match. */
static const char *narrow(const wchar_t *wide, char *out)
{
    size_t i = 0;

    for (; i < WIDE_MAX - 1 && wide[i]; i++)
        out[i] = (unsigned long)wide[i] < 0x80 ? (char)wide[i] : '?';
    out[i] = '\0';
    return out;
}

static struct text *keep(const char *text)
{
    size_t bytes = strlen(text) + 1;
    struct text *kept = malloc(bytes);

    if (kept)
        memcpy(kept->text, text, bytes);
    return kept;
}

/* Returns the message of an event, or NULL. `out` has room for WIDE_MAX characters. */
static const char *message(const nvtxEventAttributes_t *event, char *out)
{
    if (!event || event->size < offsetof(nvtxEventAttributes_t, message) + sizeof event->message)
        return NULL;
    switch (event->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
        return event->message.ascii;
    case NVTX_MESSAGE_TYPE_UNICODE:
        return event->message.unicode ? narrow(event->message.unicode, out) : NULL;
    case NVTX_MESSAGE_TYPE_REGISTERED:
        return event->message.registered ? ((const struct text *)(const void *)event->message.registered)->text : NULL;
    default:
        return NULL;
    }
}

static int push_a(const char *name)
{
    return ps_layer_markers_range_push(NULL, name);
}

static int push_w(const wchar_t *name)
{
    char text[WIDE_MAX];

    return ps_layer_markers_range_push(NULL, name ? narrow(name, text) : NULL);
}

static int push_ex(const nvtxEventAttributes_t *event)
{
    char text[WIDE_MAX];

    return ps_layer_markers_range_push(NULL, message(event, text));
}

static int pop(void)
{
    return ps_layer_markers_range_pop(NULL);
}

static nvtxRangeId_t start_a(const char *name)
{
    return ps_layer_markers_range_start(name);
}

static nvtxRangeId_t start_w(const wchar_t *name)
{
    char text[WIDE_MAX];

    return ps_layer_markers_range_start(name ? narrow(name, text) : NULL);
}

static nvtxRangeId_t start_ex(const nvtxEventAttributes_t *event)
{
    char text[WIDE_MAX];

    return ps_layer_markers_range_start(message(event, text));
}

static void end(nvtxRangeId_t id)
{
    ps_layer_markers_range_end(id);
}

static int domain_push_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
    char text[WIDE_MAX];

    return ps_layer_markers_range_push(domain, message(event, text));
}

static int domain_pop(nvtxDomainHandle_t domain)
{
    return ps_layer_markers_range_pop(domain);
}

static nvtxRangeId_t domain_start_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
    (void)domain;
    return start_ex(event);
}

static void domain_end(nvtxDomainHandle_t domain, nvtxRangeId_t id)
{
    (void)domain;
    ps_layer_markers_range_end(id);
}

static nvtxStringHandle_t register_a(nvtxDomainHandle_t domain, const char *text)
{
    (void)domain;
    return text ? (nvtxStringHandle_t)(void *)keep(text) : NULL;
}

static nvtxStringHandle_t register_w(nvtxDomainHandle_t domain, const wchar_t *wide)
{
    char text[WIDE_MAX];

    return wide ? register_a(domain, narrow(wide, text)) : NULL;
}

static nvtxDomainHandle_t create_a(const char *name)
{
    return (nvtxDomainHandle_t)(void *)keep(name ? name : "");
}

static nvtxDomainHandle_t create_w(const wchar_t *name)
{
    char text[WIDE_MAX];

    return create_a(name ? narrow(name, text) : NULL);
}

/* ---- attaching ---- */

static void attach(NvtxFunctionTable table, unsigned size, unsigned which, NvtxFunctionPointer function)
{
    if (which < size && table[which])
        *table[which] = function;
}

/* Finds the source that the set-up will find. The set-up may come later than the first range. */
static enum ps_layers_from source_of_layers(void)
{
    static struct ps_settings settings;

    ps_settings_read(&settings, environ, NULL, NULL);
    if (settings.disable)
        settings.layers.from = PS_LAYERS_NONE;
    ps_layer_markers_open(&settings.layers);
    return ps_layer_markers_from();
}

/*
 * Each copy of NVTX in the process calls this once. Returns 0 if ranges are not wanted; NVTX does
 * nothing from then on.
 */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const NvtxExportTableCallbacks *callbacks = get_table ? get_table(NVTX_ETID_CALLBACKS) : NULL;
    NvtxFunctionTable core = NULL, core2 = NULL;
    unsigned core_size = 0, core2_size = 0;

    if (!callbacks || callbacks->struct_size < sizeof *callbacks)
        return 0;
    pthread_mutex_lock(&lock);
    enum ps_layers_from from = source_of_layers();
    pthread_mutex_unlock(&lock);
    if (from != PS_LAYERS_NVTX)
        return 0;
#define ATTACH(module, which, function) attach(module, module##_size, (which), (NvtxFunctionPointer)(function))
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &core_size)) {
        ATTACH(core, NVTX_CBID_CORE_RangePushA, push_a);
        ATTACH(core, NVTX_CBID_CORE_RangePushW, push_w);
        ATTACH(core, NVTX_CBID_CORE_RangePushEx, push_ex);
        ATTACH(core, NVTX_CBID_CORE_RangePop, pop);
        ATTACH(core, NVTX_CBID_CORE_RangeStartA, start_a);
        ATTACH(core, NVTX_CBID_CORE_RangeStartW, start_w);
        ATTACH(core, NVTX_CBID_CORE_RangeStartEx, start_ex);
        ATTACH(core, NVTX_CBID_CORE_RangeEnd, end);
    }
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &core2_size)) {
        ATTACH(core2, NVTX_CBID_CORE2_DomainRangePushEx, domain_push_ex);
        ATTACH(core2, NVTX_CBID_CORE2_DomainRangePop, domain_pop);
        ATTACH(core2, NVTX_CBID_CORE2_DomainRangeStartEx, domain_start_ex);
        ATTACH(core2, NVTX_CBID_CORE2_DomainRangeEnd, domain_end);
        ATTACH(core2, NVTX_CBID_CORE2_DomainRegisterStringA, register_a);
        ATTACH(core2, NVTX_CBID_CORE2_DomainRegisterStringW, register_w);
        ATTACH(core2, NVTX_CBID_CORE2_DomainCreateA, create_a);
        ATTACH(core2, NVTX_CBID_CORE2_DomainCreateW, create_w);
    }
#undef ATTACH
    ps_log_info(TRACER, "NVTX ranges mark layers");
    return 1;
}
