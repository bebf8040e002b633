#include "base/per_device.h"

__thread ptrdiff_t ps_here __attribute__((tls_model("initial-exec")));
