/*
 * A gate on the stream of evictions, at which D2H copies let mappings pass.
 *
 * The driver makes a mapping by small copies of its own. While one D2H follows another without a gap, the copy engine is the D2H stream's for a time
 * slice, and cuMemSetAccess takes 0.98 ms for each handle, in whatever pieces the D2H is queued and from however many threads the mappings come; after a
 * gap it takes 0.03 ms (H200, driver 580; tests/results/2026-11-23-h200-mapping.jsonl). So a D2H is queued in pieces, with a look at a word in
 * host memory ahead of each, and who makes a mapping shuts the gate for as long: the stream then stands still at the next piece's end. With nothing to
 * be mapped a look costs the stream 1 us. Host pages, which take the driver 7 us a MiB to map (FACTS), are not worth that: evictions would be held up for
 * half of what they take (tried on an H200: a step of 1,132 ms instead of 1,090).
 *
 * Two clocks: the gate orders nothing; it only lets the D2H stream come later, by what one mapping takes. It is shut by the host and looked at by the
 * device, whenever it gets there. The mapping may need a lock of the driver's whose holder waits, in the end, for that stream (a full queue does): no
 * gate stays shut for longer than a few ms (a third of a second where a stream is held), as a thread that calls no driver opens it then.
 *
 * Threads: any. A device of its own has each (per_device.h). Without a gate, where the driver can't have one, nothing here does anything.
 */
#ifndef PS_GATE_H
#define PS_GATE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Makes the device's gate, open. `granularity`: bytes of a page. `stream`: any, for a first look. Where there can be none, one line says so. Once, by who
 * sets the device up.
 */
void ps_gate_make(CUstream stream, size_t granularity);

/* Queues a D2H on the stream, in pieces and with looks at the gate. 0 or -errno; then part of it may be queued. */
int ps_gate_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes);

/*
 * Around a call that makes a mapping. They nest, and overlap between threads. False: there is nothing to open, since no D2H has been queued yet, as while
 * memory suffices, or there is no gate.
 */
bool ps_gate_shut(void);
void ps_gate_open(void);

/*
 * Shuts it for longer, a third of a second at most, and lets the stream stand at it from here on: for who wants to queue much that is to begin at once. False: it can't;
 * nothing is to be opened then.
 */
bool ps_gate_hold(CUstream stream);
void ps_gate_let_go(void);

#endif
