/*
 * Annotations: hints that a program gives Penstock about itself. None is required; without a hint,
 * Penstock has to find the fact out.
 *
 * The program links no library. The functions are weak references, which the loader resolves when
 * libpenstock.so is preloaded. Without libpenstock.so each call is a test of a null pointer.
 *
 * With clang, compile a program that is not position-independent with -fno-plt. Without that flag
 * the linker decides that the functions do not exist. `pkg-config --cflags penstock` prints the
 * flag. With gcc an attribute in this header has the same effect.
 *
 * Threads: any thread may call any function at any time, even before the first CUDA call. A layer
 * belongs to the thread that began it, and says nothing about the launches of other threads. torch
 * runs backward on its own threads, so mark the layers of backward in hooks, which run there.
 */
#ifndef PENSTOCK_PENSTOCK_H
#define PENSTOCK_PENSTOCK_H

#include "direction.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef PENSTOCK_IMPLEMENTATION
#define PENSTOCK_API __attribute__((visibility("default")))
#elif defined(__has_attribute) && !defined(__clang__)
#define PENSTOCK_API __attribute__((weak, noplt))
#else
#define PENSTOCK_API __attribute__((weak))
#endif

/*
 * The launches of the calling thread between a begin and the matching end belong to a layer. Layers
 * nest, and a launch belongs to the innermost one. An end without a begin does nothing. `name` is
 * for people; it is copied and may be NULL. `number` is the same in forward and backward. A
 * negative `number` marks a stretch outside the model's layers, such as embedding or loss.
 */
PENSTOCK_API void penstock_layer_begin(const char *name, int number, enum penstock_direction direction);
PENSTOCK_API void penstock_layer_end(void);

/* Ends a step of the training loop: the next launch of any thread belongs to the next step. */
PENSTOCK_API void penstock_step(void);

/*
 * Keeps the allocation that holds the address in device memory, from its next use on. The pin ends
 * when the program frees the allocation, or has unpinned it as often as it pinned it.
 *
 * Both functions return 0 or a negative errno. -ENOENT: Penstock manages no allocation there; the
 * allocation is too small, for example, or Penstock is not in the process. -EINVAL: penstock_unpin
 * found no pin, or penstock_pin found UINT32_MAX pins already.
 */
PENSTOCK_API int penstock_pin(const void *address);
PENSTOCK_API int penstock_unpin(const void *address);

/*
 * Says that the program won't use the allocation that holds the address for a while. When memory is
 * short, this allocation leaves first. Its next use cancels the hint. Returns 0, or -ENOENT as
 * above.
 */
PENSTOCK_API int penstock_hint_idle(const void *address);

#undef PENSTOCK_API

#ifndef PENSTOCK_IMPLEMENTATION
#define PENSTOCK_ENOENT (-2)
#define penstock_layer_begin(name, number, direction)                                                                  \
    (penstock_layer_begin ? penstock_layer_begin((name), (number), (direction)) : (void)0)
#define penstock_layer_end() (penstock_layer_end ? penstock_layer_end() : (void)0)
#define penstock_step() (penstock_step ? penstock_step() : (void)0)
#define penstock_pin(address) (penstock_pin ? penstock_pin(address) : PENSTOCK_ENOENT)
#define penstock_unpin(address) (penstock_unpin ? penstock_unpin(address) : PENSTOCK_ENOENT)
#define penstock_hint_idle(address) (penstock_hint_idle ? penstock_hint_idle(address) : PENSTOCK_ENOENT)
#endif

#ifdef __cplusplus
}
#endif

#endif
