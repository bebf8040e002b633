/*
 * The rest of the runtime API: entry points that the simulator lacks. Each answers
 * cudaErrorNotSupported, which the ledger counts.
 *
 * The toolkit's function declarations are not included. Parameters do not matter here, and a
 * caller's arguments do no harm.
 */
#include <driver_types.h>

#define CUDASIM_UNSUPPORTED(name) enum cudaError name(void);
#include "unsupported.def"
#undef CUDASIM_UNSUPPORTED

enum cudaError cudasim_runtime_not_supported(const char *entry_point);

#define CUDASIM_UNSUPPORTED(name)                                                                                      \
    __attribute__((visibility("default"))) enum cudaError name(void)                                                   \
    {                                                                                                                  \
        return cudasim_runtime_not_supported(#name);                                                                   \
    }
#include "unsupported.def"
