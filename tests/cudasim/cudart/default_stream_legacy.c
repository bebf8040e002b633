/*
 * Entry points for which "stream 0" is the legacy default stream.
 *
 * As in the driver, calls that depend on the default stream exist twice in the runtime. One version
 * is plain. The other is for code with a default stream per thread, and ends in _ptsz or _ptds.
 * CUDA's headers rename the runtime's and the driver's calls under one macro. So the bodies are
 * written once, and default_stream_per_thread.c compiles them again with that macro.
 */
#include "per_stream.h"

#define DEFAULT_STREAM_FLAG CU_GET_PROC_ADDRESS_LEGACY_STREAM

#include "per_stream_calls.h"
#include "per_stream_copies.h"
