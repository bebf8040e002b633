#include "tracer/look_ups.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/secure_execution.h"

extern char **environ;

static atomic_bool gave_launch, tool_announced;

static bool begins_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/*
 * Returns whether a tool that uses CUPTI runs this program. Profilers, sanitizers and injected
 * libraries set these variables for the program that they run. `penstock doctor` has the same list.
 */
static bool is_tool_announced(void)
{
    static const char *const starts[] = {"CUDA_INJECTION64_PATH=", "NV_NSIGHT_INJECTION", "NV_COMPUTE_PROFILER",
                                         "NV_SANITIZER_INJECTION"};

    for (char **entry = environ; entry && *entry; entry++) {
        const char *value = strchr(*entry, '=');
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
            if (begins_with(*entry, starts[i]) && value && value[1])
                return true;
        if (begins_with(*entry, "NSYS_")) {
            const char *session = strstr(*entry, "SESSION"), *injection = strstr(*entry, "INJECTION");
            if (value && ((session && session < value) || (injection && injection < value)))
                return true;
        }
    }
    return false;
}

static enum ps_look_ups decide(void)
{
    const char *tracer = getenv("PENSTOCK_TRACER"), *disable = getenv("PENSTOCK_DISABLE");

    atomic_store(&tool_announced, is_tool_announced());
    if (ps_is_secure_execution() || (disable && !strcmp(disable, "1")))
        return PS_LOOK_UPS_NONE;
    return tracer && !strcmp(tracer, "cupti") ? PS_LOOK_UPS_HOOKS : PS_LOOK_UPS_ALL;
}

enum ps_look_ups ps_look_ups_answered(void)
{
    static _Atomic enum ps_look_ups decided;
    enum ps_look_ups now = atomic_load_explicit(&decided, memory_order_relaxed);

    if (now == PS_LOOK_UPS_UNDECIDED) {
        now = decide();
        atomic_store_explicit(&decided, now, memory_order_relaxed);
    }
    return now;
}

bool ps_look_ups_is_ours(void)
{
    return ps_look_ups_answered() == PS_LOOK_UPS_ALL;
}

bool ps_look_ups_gave_launch(void)
{
    return atomic_load(&gave_launch);
}

bool ps_look_ups_tool_is_announced(void)
{
    ps_look_ups_answered();
    return atomic_load(&tool_announced);
}

void ps_look_ups_give_launch(void)
{
    atomic_store(&gave_launch, true);
}
