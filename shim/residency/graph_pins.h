/*
 * The memory of graphs that kernels launch. No call shows such a launch. So the memory is brought
 * to the device when the graph is made or changed. It stays where it is until the graph is
 * destroyed.
 *
 * Two clocks: host order alone. The bytes are there when ps_graph_pins_take returns: the launch to
 * come is on no stream that could wait for an H2D. A span without room stays on its slot. It never
 * moves from there while it is pinned, since kernels may use it there at any time.
 *
 * Any thread, inside Penstock, without the registry lock.
 */
#ifndef PS_GRAPH_PINS_H
#define PS_GRAPH_PINS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_graph_pin {
    unsigned device;
    uint64_t number; /* of the span's life */
};

/* The spans that are pinned for one graph. All zero: no span. */
struct ps_graph_pins {
    struct ps_graph_pin *pin;
    size_t count, room;
};

/*
 * Brings the spans at the addresses to the device and pins them; of a block, all pieces.
 * `everything`: takes all live spans instead. May wait on the host for evictions and copies.
 */
struct ps_graph_pins ps_graph_pins_take(const CUdeviceptr *address, size_t count, bool everything);

/*
 * Unpins the spans. Unseen launches may still be under way, on any stream: they are noted as uses.
 */
void ps_graph_pins_drop(struct ps_graph_pins *pins);

#endif
