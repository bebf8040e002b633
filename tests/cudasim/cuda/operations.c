/* How one operation runs, and how a fault in it is reported. */
#include <string.h>

#include "conditions.h"
#include "engine.h"
#include "guard.h"
#include "kernels.h"
#include "ledger.h"
#include "memory.h"

static bool is_one_row(const struct cudasim_box *box)
{
    return box->height == 1 && box->depth == 1;
}

/*
 * Returns the number of `units` of one side of a copy, or of a fill: bytes if it is one row, rows
 * otherwise. A piece is a run of units.
 */
static size_t box_units(const struct cudasim_box *box)
{
    return is_one_row(box) ? box->width : box->height * box->depth;
}

static uintptr_t row_address(const struct cudasim_side *side, const struct cudasim_box *box, size_t row)
{
    return side->address + row / box->height * side->slice_pitch + row % box->height * side->pitch;
}

static void piece_bounds(size_t units, size_t piece, size_t pieces, size_t alignment, size_t *first, size_t *end)
{
    *first = units / pieces * piece / alignment * alignment;
    *end = piece + 1 == pieces ? units : units / pieces * (piece + 1) / alignment * alignment;
}

struct run_argument {
    struct cudasim_operation *operation;
    size_t piece, pieces;
};

static void run_copy(const struct cudasim_copy *copy, size_t piece, size_t pieces)
{
    size_t first, end;
    size_t units = box_units(&copy->box);
    piece_bounds(units, piece, pieces, 1, &first, &end);
    if (is_one_row(&copy->box)) {
        memmove((void *)(copy->to.address + first), (const void *)(copy->from.address + first), end - first);
        return;
    }
    for (size_t row = first; row < end; row++)
        memmove((void *)row_address(&copy->to, &copy->box, row),
                (const void *)row_address(&copy->from, &copy->box, row), copy->box.width);
}

static void fill_bytes(uintptr_t to, size_t bytes, const struct cudasim_fill *fill)
{
    if (fill->value_bytes == 1) {
        memset((void *)to, (int)fill->value, bytes);
        return;
    }
    for (size_t at = 0; at + fill->value_bytes <= bytes; at += fill->value_bytes)
        memcpy((void *)(to + at), &fill->value, fill->value_bytes);
}

static void run_fill(const struct cudasim_fill *fill, size_t piece, size_t pieces)
{
    size_t first, end;
    size_t units = box_units(&fill->box);
    if (is_one_row(&fill->box)) {
        piece_bounds(units, piece, pieces, fill->value_bytes, &first, &end);
        fill_bytes(fill->to.address + first, end - first, fill);
        return;
    }
    piece_bounds(units, piece, pieces, 1, &first, &end);
    for (size_t row = first; row < end; row++)
        fill_bytes(row_address(&fill->to, &fill->box, row), fill->box.width, fill);
}

static void write_word(const struct cudasim_operation *operation)
{
    if (operation->word.wide)
        __atomic_store_n((uint64_t *)operation->word.address, operation->word.value, __ATOMIC_SEQ_CST);
    else
        __atomic_store_n((uint32_t *)operation->word.address, (uint32_t)operation->word.value, __ATOMIC_SEQ_CST);
}

struct word_argument {
    const struct cudasim_operation *operation;
    uint64_t value;
};

static void read_word(void *argument)
{
    struct word_argument *word = argument;
    if (word->operation->word.wide)
        word->value = __atomic_load_n((uint64_t *)word->operation->word.address, __ATOMIC_SEQ_CST);
    else
        word->value = __atomic_load_n((uint32_t *)word->operation->word.address, __ATOMIC_SEQ_CST);
}

static __thread const struct cudasim_operation *kernel_running;

const struct cudasim_operation *cudasim_kernel_running(void)
{
    return kernel_running;
}

static void run_kernel(const struct cudasim_operation *operation, size_t piece, size_t pieces)
{
    const struct cudasim_operation *outer = kernel_running;
    struct cudasim_launch launch = operation->kernel.launch;

    launch.part = (uint32_t)piece;
    launch.parts = (uint32_t)pieces;
    kernel_running = operation;
    operation->kernel.entry->code->run(&launch, operation->kernel.params);
    kernel_running = outer;
}

static void run_guarded(void *argument)
{
    const struct run_argument *run = argument;
    struct cudasim_operation *operation = run->operation;
    switch (operation->kind) {
    case CUDASIM_OPERATION_KERNEL:
        run_kernel(operation, run->piece, run->pieces);
        break;
    case CUDASIM_OPERATION_COPY:
        run_copy(&operation->copy, run->piece, run->pieces);
        break;
    case CUDASIM_OPERATION_FILL:
        run_fill(&operation->fill, run->piece, run->pieces);
        break;
    case CUDASIM_OPERATION_POOL_FREE:
    case CUDASIM_OPERATION_GRAPH_FREE:
        cudasim_pool_block_poison(operation->pool_block);
        break;
    case CUDASIM_OPERATION_WRITE_VALUE:
        write_word(operation);
        break;
    case CUDASIM_OPERATION_CONDITIONS_BEGIN:
        cudasim_conditions_assign(operation);
        break;
    case CUDASIM_OPERATION_WAIT_VALUE:
        read_word(&(struct word_argument){operation, 0});
        break;
    case CUDASIM_OPERATION_HOST_FUNCTION:
    case CUDASIM_OPERATION_MARKER:
    case CUDASIM_OPERATION_EVENT_RECORD:
    case CUDASIM_OPERATION_EVENT_WAIT:
    case CUDASIM_OPERATION_GRAPH_ALLOC:
    case CUDASIM_OPERATION_PREFETCH:
    case CUDASIM_OPERATION_CONDITIONAL: /* runs by cudasim_conditional_step */
        break;
    }
}

void cudasim_operation_run_in_kernel(struct cudasim_operation *operation)
{
    run_guarded(&(struct run_argument){operation, 0, 1});
    if (operation->kind == CUDASIM_OPERATION_KERNEL)
        cudasim_ledger_kernel_ran(operation->kernel.entry);
}

/*
 * Counts copies of whole pages that were never written. They are not wrong by themselves, but a
 * test may check for them.
 */
static void count_poison_source(void *argument)
{
    const struct cudasim_copy *copy = argument;
    if (copy->direction != CUDASIM_DIRECTION_D2H && copy->direction != CUDASIM_DIRECTION_D2D)
        return;
    if (is_one_row(&copy->box))
        cudasim_ledger_poison_copied(cudasim_poison_pages((const void *)copy->from.address, copy->box.width));
}

/*
 * ThreadSanitizer does not see the reads of a D2H. When an access cancels an eviction, its D2H goes
 * on reading the span while the program writes to it. That copy is never used. Reporting it word by
 * word took a kernel of a megabyte half a minute, suppressed or not. The seeds, not
 * ThreadSanitizer, show that the copies in use are ordered. ThreadSanitizer checks the writes of a
 * D2H like all others.
 */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#else
#define AnnotateIgnoreReadsBegin(file, line) ((void)0)
#define AnnotateIgnoreReadsEnd(file, line) ((void)0)
#endif

static bool run_piece(struct run_argument *run, uintptr_t *fault_address)
{
    bool copies = run->operation->kind == CUDASIM_OPERATION_COPY, survived = true;
    bool unseen = copies && run->operation->copy.direction == CUDASIM_DIRECTION_D2H;

    if (unseen)
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    if (copies && run->piece == 0)
        survived = cudasim_guarded(count_poison_source, &run->operation->copy, fault_address);
    if (survived)
        survived = cudasim_guarded(run_guarded, run, fault_address);
    if (unseen)
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    return survived;
}

static const char *operation_name(const struct cudasim_operation *operation)
{
    return operation->kind == CUDASIM_OPERATION_KERNEL ? operation->kernel.entry->name : operation->call;
}

void cudasim_operation_run(struct cudasim_operation *operation, size_t piece, size_t pieces)
{
    struct run_argument run = {operation, piece, pieces};
    uintptr_t fault_address = 0;
    bool survived = true;
    if (operation->kind == CUDASIM_OPERATION_HOST_FUNCTION)
        operation->host.function(operation->host.data);
    else if (operation->kind == CUDASIM_OPERATION_KERNEL && operation->kernel.unreachable)
        fault_address = operation->kernel.unreachable, survived = false;
    else
        survived = run_piece(&run, &fault_address);
    if (!survived) {
        kernel_running = NULL;
        cudasim_ledger_unmapped_access(operation_name(operation), fault_address);
        operation->faulted = true;
    } else if (operation->kind == CUDASIM_OPERATION_KERNEL && operation->pieces_done + 1 >= pieces) {
        cudasim_ledger_kernel_ran(operation->kernel.entry);
    }
}

/*
 * A word that can't be read counts as met. The operation then runs, reads it again and reports the
 * fault.
 */
bool cudasim_wait_value_met(const struct cudasim_operation *operation)
{
    struct word_argument word = {operation, 0};
    uintptr_t fault_address;
    if (!cudasim_guarded(read_word, &word, &fault_address))
        return true;
    uint64_t mask = operation->word.wide ? UINT64_MAX : UINT32_MAX;
    uint64_t wanted = operation->word.value & mask;
    switch (operation->word.flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return operation->word.wide ? (int64_t)(word.value - wanted) >= 0
                                    : (int32_t)((uint32_t)word.value - (uint32_t)wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return word.value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (word.value & wanted) != 0;
    default: /* CU_STREAM_WAIT_VALUE_NOR */
        return (~(word.value | wanted) & mask) != 0;
    }
}
