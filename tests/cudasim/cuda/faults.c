#include "faults.h"

#include "call_params.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "entries.h"
#include "ledger.h"

enum fault_kind {
    FAULT_OOM,
    FAULT_ERROR,
    FAULT_NOT_SUPPORTED,
    FAULT_DELAY,
};

enum fault_place {
    FAULT_PLACE_ANY,
    FAULT_PLACE_DEVICE,
    FAULT_PLACE_HOST,
};

struct fault {
    char call[64];
    enum fault_kind kind;
    enum fault_place place;
    unsigned long from;
    bool onwards;
    _Atomic unsigned long seen;
};

#define MAX_FAULTS 32
#define DELAY_US 20000

static struct fault faults[MAX_FAULTS];
static size_t fault_count;
static pthread_once_t parse_once = PTHREAD_ONCE_INIT;

/*
 * Copies the entry point's name without _ptsz or _ptds, and without its version if `drop_version`.
 */
static void plain_name(const char *name, bool drop_version, char *plain, size_t room)
{
    snprintf(plain, room, "%s", name);
    size_t length = strlen(plain);
    if (length > 5 && (!strcmp(plain + length - 5, "_ptsz") || !strcmp(plain + length - 5, "_ptds")))
        plain[length -= 5] = 0;
    if (drop_version && length > 3 && plain[length - 3] == '_' && plain[length - 2] == 'v')
        plain[length - 3] = 0;
}

bool cudasim_call_is(const char *asked, const char *name)
{
    char plain[64];
    plain_name(name, false, plain, sizeof plain);
    if (!strcmp(asked, plain))
        return true;
    plain_name(name, true, plain, sizeof plain);
    return !strcmp(asked, plain);
}

static bool known_call(const char *asked)
{
    for (unsigned int entry = 0; entry < CUDASIM_CALL_COUNT; entry++)
        if (cudasim_call_is(asked, cudasim_entry_name(entry)))
            return true;
    return false;
}

static bool parse_kind(const char *word, enum fault_kind *kind)
{
    static const char *const words[] = {"oom", "error", "notsupported", "delay"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i])) {
            *kind = (enum fault_kind)i;
            return true;
        }
    return false;
}

static bool parse_fault(const char *text, struct fault *fault)
{
    char call[64] = "", kind[16] = "", plus[2] = "";
    if (sscanf(text, "%63[^:]:%15[a-z]@%lu%1[+]", call, kind, &fault->from, plus) < 3 || !fault->from)
        return false;
    fault->onwards = plus[0] == '+';
    fault->place = FAULT_PLACE_ANY;
    char *at = strchr(call, '@');
    if (at) {
        *at++ = 0;
        if (strcmp(at, "host") && strcmp(at, "device"))
            return false;
        fault->place = at[0] == 'h' ? FAULT_PLACE_HOST : FAULT_PLACE_DEVICE;
    }
    snprintf(fault->call, sizeof fault->call, "%s", call);
    return known_call(call) && parse_kind(kind, &fault->kind);
}

static void parse_faults(void)
{
    char *list = strdup(cudasim_config()->faults);
    char *rest = NULL;
    for (char *item = list ? strtok_r(list, ",", &rest) : NULL; item; item = strtok_r(NULL, ",", &rest)) {
        if (fault_count == MAX_FAULTS || !parse_fault(item, &faults[fault_count]))
            fprintf(stderr,
                    "cudasim: CUDASIM_FAULT: '%s' is not call[@device|@host]:oom|error|notsupported|delay@n[+]\n",
                    item);
        else
            fault_count++;
    }
    free(list);
}

/* Returns the place where a call makes memory. Only cuMemCreate distinguishes the two. */
static enum fault_place place_of(unsigned int entry, const void *params)
{
    if (entry != CUDASIM_CALL_cuMemCreate)
        return FAULT_PLACE_ANY;
    const CUmemAllocationProp *properties = ((const cuMemCreate_params *)params)->prop;
    return properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? FAULT_PLACE_DEVICE
                                                                                  : FAULT_PLACE_HOST;
}

/* Where an address lies; looked up once, because that takes long and waits that fail come often. */
struct place {
    void *address, *base;
    const char *file;
};

static struct place place_at(void *address)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct place known[1024];
    const size_t slot = ((uintptr_t)address >> 1) % (sizeof known / sizeof *known);
    Dl_info info = {0};

    pthread_mutex_lock(&lock);
    if (known[slot].address != address) {
        dladdr(address, &info);
        known[slot] = (struct place){.address = address, .base = info.dli_fbase, .file = info.dli_fname};
    }
    const struct place found = known[slot];
    pthread_mutex_unlock(&lock);
    return found;
}

/*
 * Notes who made the call: the file of the code that called the driver, and the place in that file
 * where the outermost of its functions on the stack stands. That tells a call that the file makes
 * of its own from one that it passes on.
 */
static void note_caller(unsigned int entry)
{
    void *frame[64];
    const void *driver = place_at((void *)note_caller).base;
    struct place caller = {0};
    uintptr_t offset = 0;
    const int count = backtrace(frame, 64);

    for (int i = 0; i < count; i++) {
        const struct place here = place_at(frame[i]);
        if (!caller.base && here.base == driver)
            continue;
        if (!caller.base)
            caller = here;
        if (here.base != caller.base)
            break;
        offset = (uintptr_t)frame[i] - (uintptr_t)here.base;
    }
    const char *name = caller.file ? strrchr(caller.file, '/') : NULL;
    cudasim_ledger_fault_injected(cudasim_entry_name(entry), name ? name + 1 : "", offset);
}

static CUresult strike(unsigned int entry, enum fault_kind kind)
{
    note_caller(entry);
    switch (kind) {
    case FAULT_OOM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case FAULT_NOT_SUPPORTED:
        return CUDA_ERROR_NOT_SUPPORTED;
    case FAULT_DELAY:
        usleep(DELAY_US);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

CUresult cudasim_fault_for(unsigned int entry, const void *params)
{
    pthread_once(&parse_once, parse_faults);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < fault_count; i++) {
        struct fault *fault = &faults[i];
        if (!cudasim_call_is(fault->call, cudasim_entry_name(entry)))
            continue;
        if (fault->place != FAULT_PLACE_ANY && fault->place != place_of(entry, params))
            continue;
        unsigned long nth = atomic_fetch_add(&fault->seen, 1) + 1;
        if (result == CUDA_SUCCESS && (nth == fault->from || (fault->onwards && nth > fault->from)))
            result = strike(entry, fault->kind);
    }
    return result;
}
