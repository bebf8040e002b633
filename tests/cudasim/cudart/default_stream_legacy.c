/*
 * Entry points for which "stream 0" is the legacy default stream.
 *
 * Calls that depend on the default stream exist twice in the runtime, as in the driver: plain, and
 * with _ptsz or _ptds at the end, for code compiled with a default stream per thread. CUDA's
 * headers rename both the runtime's and the driver's calls under one macro; so the bodies are
 * written once, and default_stream_per_thread.c compiles them again with that macro.
 */
#include "per_stream.h"

#define DEFAULT_STREAM_FLAG CU_GET_PROC_ADDRESS_LEGACY_STREAM

#include "per_stream_calls.h"
#include "per_stream_copies.h"
