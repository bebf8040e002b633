/*
 * The copy gate. Large copies are queued in pieces, with a look at a word in host memory ahead of
 * each. So other work gets its turn on the copy engine.
 *
 * The engine of a direction stays with a stream whose copies follow one another. Their number,
 * pieces and priority make no difference. Behind 512 MiB of queued copies, a copy of the program's
 * came last, 7 to 10 ms later. (It had 4 KiB to the host, or 4 MiB to the device.) With a look
 * ahead of each 16 MiB it came within 0.3 ms, of each 32 MiB within 0.7. A look at a word that has
 * its value costs the stream 1 us, and copies at most 2 %. With a look ahead of each 32 MiB, copies
 * to the device made 54.5 GB/s. In 128 MiB without any look they made 55.4 GB/s (H200;
 * tests/results/README.md#turns-on-the-copy-engine). So copies to the device have looks only while
 * the program makes such copies too, or mappings wait for them.
 *
 * A look is not enough for mappings, which the driver makes by small copies of its own. While
 * copies follow one another on the engine that it uses, cuMemSetAccess takes a time slice. That is
 * 0.98 ms for each handle, whatever the number of threads that map. After a gap it takes 0.03 ms.
 * The engine differs between machines. It is the one of copies to the host on one H200. It is the
 * one of copies to the device on each of two H100 of one host (driver 580;
 * tests/results/README.md#mappings-beside-copies). So the engine is measured (mapping_time.h).
 *
 * In that engine's direction the word is a gate. A thread that makes a mapping shuts the gate
 * meanwhile. The stream then stops at the end of its current piece. Mappings of host pages do not
 * shut it; the driver takes 7 us a MiB for them (shim/README.md#host-pages). Evictions would be
 * held up for half of their time. (On an H200 a step took 1,132 ms with a gate for them, instead of
 * 1,090.) Copies in the other direction hold up no mapping, so their word is not shut.
 *
 * Two clocks: the gate orders nothing; it only delays a copy stream by the time of one mapping. The
 * host shuts the gate, and the device looks at it when it gets there. The mapping may need a driver
 * lock. Its holder may in the end wait for that stream (a full queue does). So no gate stays shut
 * for more than a few ms (a third of a second for a held stream). A thread that makes no driver
 * call then opens it.
 *
 * Threads: any. Each device has a gate of its own (per_device.h). Where the driver can't provide
 * one, copies are queued whole, and the other functions have no effect.
 */
#ifndef PS_COPY_GATE_H
#define PS_COPY_GATE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

enum ps_copy_gate_way {
    PS_COPY_GATE_OUT, /* copies to the host */
    PS_COPY_GATE_IN,
    PS_COPY_GATE_WAYS,
};

/*
 * Makes the device's gate, open. `granularity`: bytes of a page. `stream`: any, for a first look.
 * Logs one line if the driver can't provide a gate. Called once, by the thread that sets the device
 * up.
 */
void ps_copy_gate_make(CUstream stream, size_t granularity);

/*
 * Removes the gate and ends its thread, for good, before anything was mapped or copied. Called by
 * the thread that sets the device up.
 */
void ps_copy_gate_end(void);

/*
 * The program is about to copy `bytes` to any device. For the next two seconds its copies to
 * devices get their turns. Any thread, with or without locks.
 */
void ps_copy_gate_program_copies_in(size_t bytes);

/*
 * Sets whether mappings wait for the copies of a direction, as measured. Until the first call they
 * wait for copies to the host only. Any thread.
 */
void ps_copy_gate_holds_up(enum ps_copy_gate_way way, bool mappings_wait);

/*
 * Sets whether the gate stays open during mappings. It does while the link is measured, because the
 * program's mappings would hold up those copies. One thread at a time.
 */
void ps_copy_gate_stay_open(bool stays);

/*
 * Queues a copy on the stream, in pieces and with looks. Returns 0 or -errno; after -errno a part
 * of the copy may be queued.
 */
int ps_copy_gate_copy(CUstream stream, enum ps_copy_gate_way way, CUdeviceptr to, CUdeviceptr from, size_t bytes);

/*
 * Shuts the gate ahead of a call that makes a mapping. Calls nest, and overlap between threads.
 * Returns false if the caller has nothing to open. Then the device has no gate, or the gate stays
 * open. Or no copy that the mapping would wait for was queued yet, as while memory suffices.
 */
bool ps_copy_gate_shut(void);

/* Opens the gate after that call. */
void ps_copy_gate_open(void);

/*
 * Shuts the gate for at most a third of a second, and makes the stream, of either direction, wait.
 * The caller then queues much work that is to begin at once. Returns false if that fails; the
 * caller then has nothing to open.
 */
bool ps_copy_gate_hold(CUstream stream);

/* Ends the hold of ps_copy_gate_hold. */
void ps_copy_gate_let_go(void);

#endif
