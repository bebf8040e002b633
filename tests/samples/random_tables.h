/*
 * Pointer tables of a random program: tables of addresses that the host copies, that kernels make,
 * and that graphs bring. Kernels then use tensors through them. Part of random_orders.cu.
 *
 * The tables have entries in memory of their own, side by side in one allocation, in an allocation
 * as large as a tensor, or in a variable of the module. An entry may be NULL.
 */
#ifndef PENSTOCK_SAMPLES_RANDOM_TABLES_H
#define PENSTOCK_SAMPLES_RANDOM_TABLES_H

#include "random_ahead.h"

#define ENTRIES 4
#define BESIDE_BYTES 512 /* from one table to the next in the same allocation */
#define VARIABLE_TABLES 2
#define MOST_THREADS (GATES / GATES_OF_THREAD)
#define USED_WORDS (LEAST_BYTES / sizeof(uint32_t)) /* of each tensor that is used through a table */

__device__ uint32_t *entries_in_variable[MOST_THREADS * VARIABLE_TABLES * ENTRIES];

enum table_place { ALONE, BESIDE, LARGE, IN_VARIABLE, TABLE_PLACES };

struct pointer_table {
    enum table_place place;
    uint32_t **device;
    size_t in_variable; /* its first entry there */
    tensor_ref named[ENTRIES];
    std::vector<struct work> writes, reads;
};

/* Entries as the host knows them. */
struct some_entries {
    size_t first, count;
    tensor_ref named[ENTRIES];
};

/* ---- kernels ---- */
static __host__ __device__ inline void mix_entries(struct lane lane, uint32_t *to, const uint32_t *from, uint32_t by,
                                                   size_t count)
{
    if (to == nullptr)
        return;
    FOR_EACH_ITEM (i, count)
        to[i] = (to[i] * 5 + (from == nullptr ? 1 : from[i])) ^ by;
}

KERNEL(mix_by_entries, (uint32_t *const *table, size_t to, size_t from, uint32_t by, size_t count),
       (table, to, from, by, count))
{
    mix_entries(lane, table[to], table[from], by, count);
}

KERNEL(mix_by_variable, (size_t to, size_t from, uint32_t by, size_t count), (to, from, by, count))
{
    mix_entries(lane, VARIABLE(entries_in_variable)[to], VARIABLE(entries_in_variable)[from], by, count);
}

/* Penstock knows by its first launches that this kernel writes tables. */
KERNEL(make_entries, (uint32_t * *table, uint32_t *a, uint32_t *b, size_t count), (table, a, b, count))
{
    FOR_EACH_ITEM (i, count)
        table[i] = i == 0 ? a : b;
}

/* ---- the host's view ---- */
static inline void name_entry(tensor_ref *entry, const tensor_ref &tensor)
{
    if (*entry != nullptr)
        (*entry)->held--;
    *entry = tensor;
    if (tensor != nullptr)
        tensor->held++;
}

static inline void name_entries(struct pointer_table *table, const struct some_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++)
        name_entry(&table->named[entries->first + i], entries->named[i]);
}

static inline void forget_entries(struct pointer_table *table)
{
    for (tensor_ref &entry : table->named)
        name_entry(&entry, nullptr);
}

static inline uint32_t *address_of(const tensor_ref &tensor)
{
    return tensor == nullptr ? nullptr : tensor->device;
}

static inline void mix_on_host(const tensor_ref &to, const tensor_ref &from, uint32_t by)
{
    if (to != nullptr)
        mix_entries(whole, to->words.data(), from == nullptr ? nullptr : from->words.data(), by, USED_WORDS);
}

/* ---- order ---- */
static inline void before_entries_are_read(struct random_memory *memory, int stream, struct pointer_table *table)
{
    learn_from_legacy_rules(&memory->streams, stream);
    order_after(memory, stream, &table->writes);
}

static inline void before_entries_are_written(struct random_memory *memory, int stream, struct pointer_table *table)
{
    before_entries_are_read(memory, stream, table);
    order_after(memory, stream, &table->reads);
}

static inline void entries_were_written(struct pointer_table *table, const struct work &work)
{
    table->reads.clear();
    table->writes.assign(1, work);
}

/* ---- writing ---- */
enum table_way { FROM_PINNED, FROM_PAGEABLE, AT_ONCE, IN_ROWS, BY_KERNEL, CLEARED, TABLE_WAYS };

/* Copies from a pinned buffer, which comes back when the copy is over. */
static inline void copy_pinned_entries(struct random_memory *memory, int stream, struct pointer_table *table,
                                       const struct some_entries *entries, bool in_rows)
{
    uint32_t *const buffer = host_buffer(memory);
    uint32_t **const addresses = reinterpret_cast<uint32_t **>(buffer);
    const size_t bytes = entries->count * sizeof(uint32_t *);
    const size_t stride = in_rows ? 3 : 1;

    for (size_t i = 0; i < entries->count; i++)
        addresses[i * stride] = address_of(entries->named[i]);
    if (in_rows)
        CHECK(cudaMemcpy2DAsync(table->device + entries->first, sizeof(uint32_t *), addresses,
                                stride * sizeof(uint32_t *), sizeof(uint32_t *), entries->count, cudaMemcpyHostToDevice,
                                handle_of(memory, stream)));
    else if (table->place == IN_VARIABLE)
        CHECK(cudaMemcpyToSymbolAsync(entries_in_variable, addresses, bytes,
                                      (table->in_variable + entries->first) * sizeof(uint32_t *),
                                      cudaMemcpyHostToDevice, handle_of(memory, stream)));
    else
        CHECK(cudaMemcpyAsync(table->device + entries->first, addresses, bytes, cudaMemcpyDefault,
                              handle_of(memory, stream)));
    entries_were_written(table, worked(&memory->streams, stream));
    memory->looks.push_back({buffer, {}, moment_on(&memory->streams, stream), memory->issued});
}

/* Copies from memory on the stack. `at_once`: by a call that waits, on the legacy stream. */
static inline void copy_ordinary_entries(struct random_memory *memory, int stream, struct pointer_table *table,
                                         const struct some_entries *entries, bool at_once)
{
    uint32_t *addresses[ENTRIES];
    const size_t bytes = entries->count * sizeof(uint32_t *);
    uint32_t **const to = table->device + entries->first;

    for (size_t i = 0; i < entries->count; i++)
        addresses[i] = address_of(entries->named[i]);
    if (!at_once) {
        CHECK(cudaMemcpyAsync(to, addresses, bytes, cudaMemcpyHostToDevice, handle_of(memory, stream)));
        entries_were_written(table, worked(&memory->streams, stream));
        return;
    }
    wait_for(memory, &table->writes);
    wait_for(memory, &table->reads);
    if (table->place == IN_VARIABLE)
        CHECK(cudaMemcpyToSymbol(entries_in_variable, addresses, bytes,
                                 (table->in_variable + entries->first) * sizeof(uint32_t *)));
    else
        CHECK(cudaMemcpy(to, addresses, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy)); /* the call returns when ordinary memory has been read */
    table->writes.clear();
    table->reads.clear();
}

static inline void clear_entries(struct random_memory *memory, int stream, struct pointer_table *table,
                                 struct some_entries *entries)
{
    for (tensor_ref &named : entries->named)
        named = nullptr;
    CHECK(cudaMemsetAsync(table->device + entries->first, 0, entries->count * sizeof(uint32_t *),
                          handle_of(memory, stream)));
    entries_were_written(table, worked(&memory->streams, stream));
}

static inline void make_on_device(struct random_memory *memory, int stream, struct pointer_table *table,
                                  const tensor_ref &a, const tensor_ref &b)
{
    LAUNCH(handle_of(memory, stream), 2, make_entries, table->device, a->device, b->device, 2);
    memory->launches++;
    entries_were_written(table, worked(&memory->streams, stream));
}

/* Copies entries from one table to another on the device. */
static inline void copy_entries(struct random_memory *memory, int stream, struct pointer_table *to,
                                struct pointer_table *from, struct some_entries *entries)
{
    const size_t bytes = entries->count * sizeof(uint32_t *);

    before_entries_are_written(memory, stream, to);
    before_entries_are_read(memory, stream, from);
    for (size_t i = 0; i < entries->count; i++)
        entries->named[i] = from->named[entries->first + i];
    if (to->place == IN_VARIABLE)
        CHECK(cudaMemcpyToSymbolAsync(entries_in_variable, from->device + entries->first, bytes,
                                      (to->in_variable + entries->first) * sizeof(uint32_t *), cudaMemcpyDeviceToDevice,
                                      handle_of(memory, stream)));
    else
        CHECK(cudaMemcpyAsync(to->device + entries->first, from->device + entries->first, bytes,
                              cudaMemcpyDeviceToDevice, handle_of(memory, stream)));
    name_entries(to, entries);
    const struct work work = worked(&memory->streams, stream);
    entries_were_written(to, work);
    from->reads.push_back(work);
}

/* ---- using ---- */
static inline void launch_by_entries(cudaStream_t stream, const struct pointer_table *table, size_t to, size_t from,
                                     uint32_t by)
{
    if (table->place == IN_VARIABLE)
        LAUNCH(stream, USED_WORDS, mix_by_variable, table->in_variable + to, table->in_variable + from, by, USED_WORDS);
    else
        LAUNCH(stream, USED_WORDS, mix_by_entries, table->device, to, from, by, USED_WORDS);
}

static inline void use_entries(struct random_memory *memory, int stream, struct pointer_table *table, size_t to,
                               size_t from, uint32_t by)
{
    const tensor_ref written = table->named[to], read = table->named[from];

    before_entries_are_read(memory, stream, table);
    if (written != nullptr)
        before_write(memory, stream, written.get());
    if (read != nullptr)
        before_read(memory, stream, read.get());
    launch_by_entries(handle_of(memory, stream), table, to, from, by);
    memory->launches++;
    mix_on_host(written, read, by);
    const struct work work = worked(&memory->streams, stream);
    if (read != nullptr)
        was_read(read.get(), work);
    if (written != nullptr)
        was_written(written.get(), work);
    table->reads.push_back(work);
}

/* ---- the tables of a program ---- */
struct pointer_tables {
    std::vector<struct pointer_table> all;
    uint32_t **beside; /* the allocation of those that lie side by side */
};

static inline uint32_t **new_entries(size_t bytes)
{
    void *device = nullptr;

    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMemset(device, 0, bytes));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    return static_cast<uint32_t **>(device);
}

static inline uint32_t **new_place(const struct pointer_tables *tables, enum table_place place, size_t number)
{
    if (place == BESIDE)
        return tables->beside + number * (BESIDE_BYTES / sizeof(uint32_t *));
    return new_entries(place == LARGE ? unit_bytes : ENTRIES * sizeof(uint32_t *));
}

static inline bool is_allocated(const struct pointer_table *table)
{
    return table->place == ALONE || table->place == LARGE;
}

/* Two tables of each place. */
static inline void prepare_pointer_tables(struct pointer_tables *tables, size_t thread)
{
    void *variable = nullptr;

    tables->beside = new_entries(VARIABLE_TABLES * BESIDE_BYTES);
    CHECK(cudaGetSymbolAddress(&variable, entries_in_variable));
    for (size_t i = 0; i < 2 * TABLE_PLACES; i++) {
        struct pointer_table table = {};

        table.place = static_cast<enum table_place>(i / 2);
        if (table.place == IN_VARIABLE) {
            table.in_variable = (thread * VARIABLE_TABLES + i % 2) * ENTRIES;
            table.device = static_cast<uint32_t **>(variable) + table.in_variable;
            CHECK(cudaMemset(table.device, 0, ENTRIES * sizeof(uint32_t *)));
            CHECK(cudaStreamSynchronize(cudaStreamLegacy));
        } else {
            table.device = new_place(tables, table.place, i % 2);
        }
        tables->all.push_back(table);
    }
}

/* Frees the table's memory. With new memory it has no entries. */
static inline void replace_place(struct random_memory *memory, struct pointer_tables *tables,
                                 struct pointer_table *table)
{
    wait_for(memory, &table->writes);
    wait_for(memory, &table->reads);
    table->writes.clear();
    table->reads.clear();
    CHECK(cudaFree(table->device));
    forget_entries(table);
    table->device = new_place(tables, table->place, 0);
}

static inline void free_pointer_tables(struct pointer_tables *tables)
{
    for (const struct pointer_table &table : tables->all)
        if (is_allocated(&table))
            CHECK(cudaFree(table.device));
    CHECK(cudaFree(tables->beside));
    tables->all.clear();
}

#endif
