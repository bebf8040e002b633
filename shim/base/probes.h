/*
 * Probe points for bpftrace, perf, SystemTap and gdb (USDT), provider "penstock". Each is one nop
 * until a tool attaches to it. They come from <sys/sdt.h> (Debian: systemtap-sdt-dev), which has
 * only macros. Without that header there are no probes. scripts/manual/trace.md describes their
 * arguments.
 */
#ifndef PS_PROBES_H
#define PS_PROBES_H

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define PS_PROBE2(name, a, b) DTRACE_PROBE2(penstock, name, a, b)
#define PS_PROBE3(name, a, b, c) DTRACE_PROBE3(penstock, name, a, b, c)
#define PS_PROBE4(name, a, b, c, d) DTRACE_PROBE4(penstock, name, a, b, c, d)
#else
#define PS_PROBE2(name, a, b) ((void)(a), (void)(b))
#define PS_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#define PS_PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

#endif
