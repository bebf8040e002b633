#include "base/counters.h"

struct ps_counters ps_counters;
struct ps_passthrough ps_passthrough;
