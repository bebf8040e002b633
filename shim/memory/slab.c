#include "memory/slab.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/bytes_text.h"
#include "base/clock.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/per_device.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "memory/address_space.h"
#include "memory/mapping_time.h"
#include "memory/registry.h"
#include "memory/slab_progress.h"
#include "memory/slab_rows.h"

TAILQ_HEAD(slot_list, ps_slot);

/* A size of slots. It is removed with its last slot. */
struct ps_slot_size {
    size_t bytes;
    uint32_t made;         /* slots, free or not */
    uint32_t free;         /* free slots */
    struct slot_list list; /* the free slots, oldest first */
    LIST_ENTRY(ps_slot_size) next;
};
LIST_HEAD(size_list, ps_slot_size);

static PS_PER_DEVICE struct {
    /* Constant once set up. */
    struct ps_amount bound;
    uint32_t sharers;
    size_t unit;

    /* Guarded by the registry lock, unless a field says otherwise. */
    struct size_list sizes; /* largest first; a program has a few dozen */
    struct slot_list free_slots;
    uint64_t free_bytes;
    struct ps_slab_figures figures;
    _Atomic uint64_t made_bytes; /* copy of figures.bytes for other devices */
    bool extended;               /* the bound is auto and exceeds a half of the host's memory: see ps_slab_extend */
    struct ps_address_space addresses;
    CUdeviceptr reservation;
    /*
     * Bytes of slots when the host last refused. It is asked again after a while, because other
     * processes may give memory back.
     */
    uint64_t refused_with;
    uint64_t refused_until_ns; /* 0: not refused */
} first_dev;
#define dev (&PS_HERE(first_dev))

#define REFUSED_FOR_NS 1000000000u

/* Number of sizes that the search for a row considers. */
#define ROW_SIZES_MAX 64u

#define LARGEST_RESERVATION (4ull << 40)
#define SMALLEST_RESERVATION (64ull << 20)

/*
 * Returns the bound in bytes, with `made` bytes of slots made. It is read again whenever it
 * matters. Host memory may be added later (a virtual machine that grows); then the first reading is
 * too small.
 */
static uint64_t work_out_whole_limit(uint64_t made)
{
    struct ps_host_memory memory;
    uint64_t whole;

    if (dev->bound.kind == PS_AMOUNT_BYTES || dev->bound.kind == PS_AMOUNT_UNLIMITED)
        return ps_amount_bytes(dev->bound, 0);
    if (ps_host_memory_read("", &memory)) {
        ps_log_warn_once(SLAB, "the size of the machine's memory (/proc/meminfo) can't be read: the slab "
                               "is limited to 1 GiB; PENSTOCK_HOST_BUDGET sets another limit");
        return 1ull << 30;
    }
    whole = ps_host_memory_total(&memory);
    if (dev->bound.kind == PS_AMOUNT_PERCENT)
        return ps_amount_bytes(dev->bound, whole) / dev->sharers;
    uint64_t most = whole / 2 / dev->sharers;
    if (dev->extended) {
        uint64_t available = ps_host_memory_available(&memory);
        uint64_t can_grow = available > whole / 4 ? (available - whole / 4) / dev->sharers : 0;
        uint64_t further = made + can_grow;
        if (further > whole / 4 * 3 / dev->sharers)
            further = whole / 4 * 3 / dev->sharers;
        if (further > most)
            most = further;
    }
    return most;
}

/*
 * Returns this device's share of the bound. The share is an equal part, if the others have left
 * that much. The first device has the whole bound until there is a second one. The others' figures
 * are read without their locks: figures of a moment ago will do.
 */
static uint64_t work_out_limit(uint64_t made)
{
    const ptrdiff_t at = ps_here;
    uint64_t others = 0;

    if (!ps_devices_several)
        return work_out_whole_limit(made);
    unsigned count = ps_devices_count();
    bool is_among = false;
    for (unsigned i = 0; i < count; i++) {
        ps_devices_enter(i);
        if (ps_here == at)
            is_among = true;
        else
            others += atomic_load_explicit(&dev->made_bytes, memory_order_relaxed);
        ps_here = at;
    }
    count += !is_among; /* the device is being set up */
    uint64_t whole = work_out_whole_limit(made + others), left = whole > others ? whole - others : 0;
    return left < whole / count ? left : whole / count;
}

void ps_slab_open(struct ps_amount host_budget, uint32_t local_processes, size_t granularity)
{
    dev->bound = host_budget;
    dev->sharers = local_processes ? local_processes : 1;
    dev->unit = granularity;
    LIST_INIT(&dev->sizes);
    TAILQ_INIT(&dev->free_slots);
    dev->figures.limit_bytes = work_out_limit(0);
}

/*
 * Makes the slab's reservation at the first slot. A program that always has enough memory never
 * needs it. [unlocked, one thread at a time]
 */
static int reserve_addresses(void)
{
    uint64_t bytes = ps_host_memory_addresses(LARGEST_RESERVATION);
    CUresult result;

    if (dev->reservation)
        return 0;
    do {
        result = ps_cu.cuMemAddressReserve(&dev->reservation, bytes, dev->unit, 0, 0);
    } while (result != CUDA_SUCCESS && (bytes /= 2) >= SMALLEST_RESERVATION);
    if (result != CUDA_SUCCESS) {
        dev->reservation = 0;
        return ps_cuda_errno(result);
    }
    return ps_address_space_init(&dev->addresses, dev->reservation, bytes);
}

bool ps_slab_extend(size_t bytes)
{
    uint64_t before = dev->figures.limit_bytes, made = dev->figures.bytes;

    if (dev->bound.kind != PS_AMOUNT_AUTO || dev->refused_until_ns ||
        dev->figures.bytes - dev->free_bytes + bytes <= before)
        return false;
    bool first = !dev->extended;
    dev->extended = true;
    ps_registry_unlock();
    uint64_t limit = work_out_limit(made);
    ps_registry_lock();
    dev->figures.limit_bytes = limit;
    if (limit <= before)
        return false;
    if (first)
        ps_log_warn(SLAB,
                    "half of the host's memory is too little for the tensors that must leave the "
                    "device: the slab may grow to %s; PENSTOCK_HOST_BUDGET sets its limit",
                    ps_bytes_text(limit).text);
    return true;
}

/* Adds `bytes` to the bytes of slots made; negative if slots were destroyed. */
static void count_made(int64_t bytes)
{
    dev->figures.bytes += (uint64_t)bytes;
    atomic_store_explicit(&dev->made_bytes, dev->figures.bytes, memory_order_relaxed);
}

static void count_used(size_t bytes)
{
    dev->figures.used_bytes += bytes;
    if (dev->figures.used_bytes > dev->figures.peak_used_bytes)
        dev->figures.peak_used_bytes = dev->figures.used_bytes;
}

/* ---- sizes, and the free slots of each ---- */

static struct ps_slot_size *find_size(size_t bytes)
{
    struct ps_slot_size *size;

    LIST_FOREACH (size, &dev->sizes, next)
        if (size->bytes <= bytes)
            return size->bytes == bytes ? size : NULL;
    return NULL;
}

/* Counts one more slot of the size. Returns NULL if memory is missing. [locked] */
static struct ps_slot_size *enter_size(size_t bytes)
{
    struct ps_slot_size *size = find_size(bytes), *larger = NULL, *other;

    if (!size) {
        size = calloc(1, sizeof *size);
        if (!size)
            return NULL;
        size->bytes = bytes;
        TAILQ_INIT(&size->list);
        LIST_FOREACH (other, &dev->sizes, next) {
            if (other->bytes < bytes)
                break;
            larger = other;
        }
        if (larger)
            LIST_INSERT_AFTER(larger, size, next);
        else
            LIST_INSERT_HEAD(&dev->sizes, size, next);
    }
    size->made++;
    return size;
}

/* Counts one slot of the size less. [locked] */
static void leave_size(struct ps_slot_size *size)
{
    if (--size->made)
        return;
    LIST_REMOVE(size, next);
    free(size);
}

static void take_out(struct ps_slot *slot)
{
    TAILQ_REMOVE(&dev->free_slots, slot, order);
    TAILQ_REMOVE(&slot->size->list, slot, sized);
    slot->size->free--;
    dev->free_bytes -= slot->bytes;
}

static void put_in(struct ps_slot *slot)
{
    TAILQ_INSERT_TAIL(&dev->free_slots, slot, order);
    TAILQ_INSERT_TAIL(&slot->size->list, slot, sized);
    slot->size->free++;
    dev->free_bytes += slot->bytes;
}

/* Takes the oldest free slot: its last H2D is the likeliest to be over. */
static struct ps_slot *take_oldest(struct ps_slot_size *size)
{
    struct ps_slot *slot = size ? TAILQ_FIRST(&size->list) : NULL;

    if (slot)
        take_out(slot);
    return slot;
}

struct ps_slot *ps_slab_take(size_t bytes)
{
    struct ps_slot *slot = take_oldest(find_size(bytes));

    if (slot)
        count_used(bytes);
    return slot;
}

uint64_t ps_slab_free_of(size_t bytes)
{
    const struct ps_slot_size *size = find_size(bytes);

    return size ? (uint64_t)size->free * bytes : 0;
}

/* ---- rows ---- */

/*
 * Chooses free slots that add up to `bytes`. Returns the number of sizes in `row`, or 0 if no row
 * exists.
 */
static unsigned choose_row(size_t bytes, struct ps_slab_row_size row[ROW_SIZES_MAX])
{
    const struct ps_slot_size *size;
    unsigned n = 0;

    LIST_FOREACH (size, &dev->sizes, next) {
        if (n == ROW_SIZES_MAX)
            break;
        if (size->bytes <= bytes && size->free)
            row[n++] = (struct ps_slab_row_size){.bytes = size->bytes, .there = size->free};
    }
    return ps_slab_row_choose(row, n, bytes) ? n : 0;
}

struct ps_slot *ps_slab_take_row(size_t bytes)
{
    struct ps_slab_row_size row[ROW_SIZES_MAX];
    struct ps_slot *first = NULL, **end = &first;
    unsigned n = choose_row(bytes, row); /* a single slot of this size is found first */

    for (unsigned i = 0; i < n; i++) {
        struct ps_slot_size *size = row[i].taken ? find_size(row[i].bytes) : NULL;
        for (uint32_t k = 0; k < row[i].taken; k++) {
            *end = take_oldest(size);
            end = &(*end)->next_in_row;
        }
    }
    if (!first)
        return NULL;
    count_used(bytes);
    if (first->next_in_row)
        dev->figures.rows++;
    return first;
}

bool ps_slab_has_row(size_t bytes)
{
    struct ps_slab_row_size row[ROW_SIZES_MAX];

    return choose_row(bytes, row) != 0;
}

int ps_slab_map_row(CUdeviceptr address, const struct ps_slot *row)
{
    size_t mapped = 0;
    int r = 0;

    for (; row && !r; row = row->next_in_row) {
        r = ps_handle_map(address + mapped, row->bytes, row->handle);
        if (!r)
            mapped += row->bytes;
    }
    if (r && mapped)
        ps_pages_unmap(address, mapped);
    return r;
}

void ps_slab_read_begins(struct ps_slot *row)
{
    struct ps_slot *slot;

    /*
     * The event stood for an H2D of an earlier row, too. Slots of that row may still be free with
     * the event as read_by. That H2D is over: every D2H into this slot since has waited for it, and
     * is over itself. So those slots need not wait for the new H2D.
     */
    if (row->lent)
        TAILQ_FOREACH (slot, &dev->free_slots, order)
            if (slot->read_by == row->read_done)
                slot->being_read = false;
    row->lent = row->next_in_row != NULL;
    for (slot = row; slot; slot = slot->next_in_row) {
        slot->read_by = row->read_done;
        slot->being_read = true;
    }
}

int ps_slab_wait_until_read(const struct ps_slot *row)
{
    int r = 0;

    for (; row && !r; row = row->next_in_row)
        if (row->being_read)
            r = ps_event_host_wait(row->read_by);
    return r;
}

/* ---- room, and making slots ---- */

uint64_t ps_slab_limit(void)
{
    if (dev->refused_until_ns && ps_now_ns() >= dev->refused_until_ns)
        dev->refused_until_ns = 0;
    return dev->refused_until_ns && dev->refused_with < dev->figures.limit_bytes ? dev->refused_with
                                                                                 : dev->figures.limit_bytes;
}

bool ps_slab_ask_again(void)
{
    const bool was_refused = dev->refused_until_ns && ps_now_ns() < dev->refused_until_ns;

    dev->refused_until_ns = 0;
    return was_refused;
}

bool ps_slab_has_room(size_t bytes)
{
    return dev->figures.bytes - dev->free_bytes + bytes <= ps_slab_limit();
}

bool ps_slab_can_hold_more(size_t bytes)
{
    return dev->figures.bytes + bytes <= ps_slab_limit();
}

void ps_slab_give(struct ps_slot *row)
{
    for (struct ps_slot *slot = row, *after; slot; slot = after) {
        after = slot->next_in_row;
        slot->next_in_row = NULL;
        dev->figures.used_bytes -= slot->bytes;
        put_in(slot);
    }
}

/*
 * Destroys the slot. Waits on the host, on the slab's own thread, for the H2D that reads it.
 * Returns false if that can't be known, or if the driver refuses. Then the slot is never used
 * again.
 */
static bool destroy(const struct ps_slot *slot)
{
    if (ps_slab_wait_until_read(slot) || ps_pages_unmap(slot->address, slot->bytes))
        return false;
    ps_pages_release(slot->handle);
    return true;
}

/*
 * Makes room under the bound by destroying free slots. Also makes room under the bytes at the
 * host's last refusal, if free slots suffice for that. If they don't, the host is asked all the
 * same. Returns 0 or -ENOSPC. [locked; releases the lock meanwhile]
 */
static int make_room(size_t bytes)
{
    for (;;) {
        uint64_t stays = dev->figures.bytes - dev->free_bytes + bytes, limit = ps_slab_limit();
        limit = stays > limit ? dev->figures.limit_bytes : limit;
        if (stays > limit)
            return -ENOSPC;
        if (dev->figures.bytes + bytes <= limit)
            return 0;
        struct ps_slot *slot = TAILQ_FIRST(&dev->free_slots);
        take_out(slot);
        ps_registry_unlock();
        const bool gone = destroy(slot);
        ps_registry_lock();
        if (!gone)
            continue; /* the slot still counts as made: the host's memory is not back */
        count_made(-(int64_t)slot->bytes);
        ps_address_space_give(&dev->addresses, slot->address, slot->bytes);
        leave_size(slot->size);
        free(slot); /* its event is never destroyed: other slots may hold it as their read_by */
    }
}

/* The host has refused memory. [locked] */
static void refuse(void)
{
    dev->refused_with = dev->figures.bytes;
    dev->refused_until_ns = ps_now_ns() + REFUSED_FOR_NS;
}

/* Makes a slot, which is then taken. [unlocked, one thread at a time] */
static int create(size_t bytes, struct ps_slot **out)
{
    struct ps_slot *slot = calloc(1, sizeof *slot);

    if (!slot)
        return -ENOMEM;
    ps_mapping_time_find();
    ps_registry_lock();
    uint64_t made = dev->figures.bytes;
    ps_registry_unlock();
    uint64_t limit = work_out_limit(made);
    int r = reserve_addresses();
    ps_registry_lock();
    dev->figures.limit_bytes = limit;
    if (!r)
        r = make_room(bytes);
    if (!r && !(slot->size = enter_size(bytes)))
        r = -ENOMEM;
    if (!r && !(slot->address = ps_address_space_take(&dev->addresses, bytes))) {
        leave_size(slot->size);
        r = -ENOMEM;
    }
    if (!r)
        count_made((int64_t)bytes);
    if (r && r != -ENOSPC)
        refuse();
    ps_registry_unlock();
    if (r) {
        free(slot);
        return r;
    }

    slot->bytes = bytes;
    r = ps_host_pages_create(bytes, &slot->handle);
    if (!r) {
        r = ps_handle_map(slot->address, bytes, slot->handle);
        if (!r)
            r = ps_cuda_errno(ps_cu.cuEventCreate(&slot->read_done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
        if (r) {
            ps_pages_unmap(slot->address, bytes);
            ps_pages_release(slot->handle);
        }
    }
    ps_registry_lock();
    if (!r) {
        count_used(bytes);
        ps_registry_unlock();
        *out = slot;
        return 0;
    }
    count_made(-(int64_t)bytes);
    made = dev->figures.bytes;
    ps_address_space_give(&dev->addresses, slot->address, bytes);
    leave_size(slot->size);
    refuse();
    ps_registry_unlock();
    free(slot);
    ps_log_warn_once(SLAB,
                     "the host refused %s of pinned memory, with %s pinned already (%s): raise `ulimit -l` or "
                     "the memory limit of the cgroup, or set PENSTOCK_HOST_BUDGET to what is available",
                     ps_bytes_text(bytes).text, ps_bytes_text(made).text,
                     r == -ENOMEM ? "out of memory" : "driver error");
    return r;
}

/* Makes a slot, as create() does, and reports progress. [unlocked] */
static int create_one(size_t bytes, struct ps_slot **out)
{
    /* more threads do not make host pages faster (shim/README.md#host-pages) */
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&one_at_a_time);
    ps_slab_progress_begins();
    int r = create(bytes, out);
    ps_registry_lock();
    uint64_t limit = dev->figures.limit_bytes;
    ps_registry_unlock();
    ps_slab_progress_made(r ? 0 : bytes, limit);
    pthread_mutex_unlock(&one_at_a_time);
    return r;
}

int ps_slab_add(size_t bytes)
{
    struct ps_slot *slot;
    int r = create_one(bytes, &slot);

    if (r)
        return r;
    ps_registry_lock();
    ps_slab_give(slot);
    ps_registry_unlock();
    return 0;
}

/*
 * A new row is made of slots of this size and a rest, whatever its span. So its slots fit other
 * rows, too. 128 MiB where pages have 2 MiB. The size doubles until a row has at most PIECES_MAX
 * slots.
 */
#define PIECE_PAGES 64u
#define PIECES_MAX 16u

/* Returns the size of the largest slot of a new row for `bytes`. */
static size_t piece_of(size_t bytes)
{
    size_t piece = PIECE_PAGES * dev->unit;

    while (bytes / piece > PIECES_MAX)
        piece *= 2;
    return piece;
}

/*
 * Takes free slots as part of a row for `bytes`: all of it, all but one small slot, or none.
 * `*missing`: the bytes of the rest. [locked]
 */
static struct ps_slot *take_part(size_t bytes, size_t *missing)
{
    struct ps_slot *part = ps_slab_take_row(bytes);

    *missing = part ? 0 : bytes;
    for (size_t piece = dev->unit; !part && piece < bytes && piece < piece_of(bytes); piece *= 2) {
        part = ps_slab_take_row(bytes - piece);
        if (part)
            *missing = piece;
    }
    return part;
}

int ps_slab_add_row(size_t bytes)
{
    size_t most = piece_of(bytes), missing = bytes;

    while (missing) {
        size_t piece = missing < most ? missing : most;
        ps_registry_lock();
        bool may = ps_slab_can_hold_more(piece);
        ps_registry_unlock();
        int r = may ? ps_slab_add(piece) : -ENOSPC;
        if (r)
            return r;
        missing -= piece;
    }
    return 0;
}

unsigned ps_slab_keep_lacking(size_t *bytes, unsigned n)
{
    struct ps_slab_row_size left[ROW_SIZES_MAX];
    const struct ps_slot_size *size;
    unsigned lacking = 0, sizes_there = 0;
    size_t no_row_for = 0;

    LIST_FOREACH (size, &dev->sizes, next)
        if (sizes_there < ROW_SIZES_MAX)
            left[sizes_there++] = (struct ps_slab_row_size){.bytes = size->bytes, .there = size->made};
    for (unsigned i = 0; i < n; i++) {
        unsigned larger = 0;
        while (larger < sizes_there && left[larger].bytes > bytes[i])
            larger++;
        /* A size without a row before has none now: fewer slots are left. */
        if (bytes[i] == no_row_for || !ps_slab_row_choose(left + larger, sizes_there - larger, bytes[i])) {
            no_row_for = bytes[i];
            bytes[lacking++] = bytes[i];
            continue;
        }
        for (unsigned k = larger; k < sizes_there; k++)
            left[k].there -= left[k].taken;
    }
    return lacking;
}

int ps_slab_make(size_t bytes, struct ps_slot **row)
{
    struct ps_slot *first, **end = &first;
    size_t missing = 0;
    int r = -ENOSPC;

    ps_registry_lock();
    uint64_t made = dev->figures.bytes;
    ps_registry_unlock();
    uint64_t limit = work_out_limit(made);
    ps_registry_lock();
    dev->figures.limit_bytes = limit;
    /*
     * Without room for the whole row, its new slots would displace each other. A refusal by the
     * host a moment ago does not stop this call: the caller needs the row.
     */
    bool may = dev->figures.bytes - dev->free_bytes + bytes <= limit;
    if (may)
        first = take_part(bytes, &missing);
    ps_registry_unlock();
    if (!may)
        return r;
    while (*end)
        end = &(*end)->next_in_row;
    /*
     * New slots join this row at once. If they were free meanwhile, other threads would take them.
     */
    for (r = 0; missing && !r; end = &(*end)->next_in_row) {
        size_t piece = missing < piece_of(bytes) ? missing : piece_of(bytes);
        r = create_one(piece, end);
        if (r)
            break;
        missing -= piece;
    }
    if (!r) {
        *row = first;
        return 0;
    }
    *end = NULL;
    ps_registry_lock();
    ps_slab_give(first);
    ps_registry_changed();
    ps_registry_unlock();
    return r;
}

struct ps_slab_figures ps_slab_figures(void)
{
    return dev->figures;
}
