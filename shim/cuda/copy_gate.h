/*
 * How large copies are queued, so that others have their turn on the copy engine: in pieces, with a look at a word in host memory ahead of each.
 *
 * The engine of a direction stays with a stream whose copies follow one another, however many they are, in whatever pieces and of whatever priority. Beside
 * 512 MiB of queued copies the program's own, of 4 KiB to the host or 4 MiB to the device, was made after all of them, 7 to 10 ms later; with a look ahead of each
 * 16 MiB within 0.3 ms, of each 32 MiB within 0.7. A look at a word that has its value costs the stream 1 us, and the copies at most 2 %: with one ahead of each
 * 32 MiB those to the device made 54.5 GB/s, in 128 MiB without any 55.4 (H200; tests/results/README.md#turns-on-the-copy-engine). So those to the device have
 * looks only while the program makes such copies too, or mappings wait for them.
 *
 * What is more, the driver makes a mapping by small copies of its own, for which a look is not enough: while one copy follows another on the engine that it
 * makes them with, cuMemSetAccess takes a time slice, 0.98 ms for each handle, from however many threads the mappings come; after a gap it takes 0.03 ms.
 * Which engine that is differs: the one of copies to the host on one H200, the one of copies to the device on each of two H100 of one host (driver 580;
 * tests/results/README.md#mappings-beside-copies), so it is measured (mapping_time.h). On that way the word is a gate: who makes a
 * mapping shuts it for as long, and the stream stands still at the next piece's end. Host pages, which take the driver 7 us a MiB to map (shim/README.md#host-pages), are not
 * worth that: evictions would be held up for half of what they take (tried on an H200: a step of 1,132 ms instead of 1,090). Copies of the other way hold up no
 * mapping, and their word is not shut.
 *
 * Two clocks: the gate orders nothing; it only lets a copy stream come later, by what one mapping takes. It is shut by the host and looked at by the
 * device, whenever it gets there. The mapping may need a lock of the driver's whose holder waits, in the end, for that stream (a full queue does): no
 * gate stays shut for longer than a few ms (a third of a second where a stream is held), as a thread that calls no driver opens it then.
 *
 * Threads: any. A device of its own has each (per_device.h). Without a gate, where the driver can't have one, nothing here does anything.
 */
#ifndef PS_COPY_GATE_H
#define PS_COPY_GATE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

enum ps_copy_gate_way {
    PS_COPY_GATE_OUT, /* to the host */
    PS_COPY_GATE_IN,
    PS_COPY_GATE_WAYS,
};

/*
 * Makes the device's gate, open. `granularity`: bytes of a page. `stream`: any, for a first look. Where there can be none, one line says so. Once, by who
 * sets the device up.
 */
void ps_copy_gate_make(CUstream stream, size_t granularity);

/* Its thread ends, for good, before anything was mapped or copied. By who sets the device up. */
void ps_copy_gate_end(void);

/*
 * The program is about to copy so many bytes to a device, whichever: for two seconds from here on it has its turns there. Any thread, with or without locks.
 */
void ps_copy_gate_program_copies_in(size_t bytes);

/* Whether mappings wait for the copies of a way, as measured. Until it is told: for those to the host. Any thread. */
void ps_copy_gate_holds_up(enum ps_copy_gate_way way, bool mappings_wait);

/* From here on it is not shut for mappings, or is again: while the link is measured, which those of the program would hold up. By one thread at a time. */
void ps_copy_gate_stay_open(bool stays);

/* Queues a copy on the stream, in pieces and with looks. 0 or -errno; then part of it may be queued. */
int ps_copy_gate_copy(CUstream stream, enum ps_copy_gate_way way, CUdeviceptr to, CUdeviceptr from, size_t bytes);

/*
 * Around a call that makes a mapping. They nest, and overlap between threads. False: there is nothing to open, since no copy that it would wait for
 * has been queued yet, as while memory suffices, or there is no gate.
 */
bool ps_copy_gate_shut(void);
void ps_copy_gate_open(void);

/*
 * Shuts it for longer, a third of a second at most, and lets the stream stand at it from here on, whichever way's: for who wants to queue much that is to begin at once. False: it can't;
 * nothing is to be opened then.
 */
bool ps_copy_gate_hold(CUstream stream);
void ps_copy_gate_let_go(void);

#endif
