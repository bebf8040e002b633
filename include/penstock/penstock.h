/*
 * Annotations: what a program may tell Penstock about itself. None is needed; each is a hint that Penstock would otherwise have to find out.
 *
 * Nothing has to be linked: the functions are weak references, which the loader resolves when libpenstock.so is preloaded. Where it is not,
 * each call is a test of a null pointer. (With clang a program that is not position-independent must be compiled with -fno-plt: without it the
 * linker settles that the functions are not there. `pkg-config --cflags penstock` has the flag; gcc is told by an attribute.)
 *
 * Threads: any function, any thread, at any time, before the first CUDA call too. A layer belongs to the thread that began it: it says
 * nothing about the launches of other threads. torch runs backward on threads of its own, so mark backward's layers in hooks, which run there.
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
 * What the calling thread launches from here to the matching end belongs to a layer: for people `name` (copied; may be NULL), and `number`, the
 * same in forward and backward; a negative one: none of the model's layers (embedding, loss). Layers nest; the innermost counts. An end
 * without a begin does nothing.
 */
PENSTOCK_API void penstock_layer_begin(const char *name, int number, enum penstock_direction direction);
PENSTOCK_API void penstock_layer_end(void);

/* A step of the training loop is over: the next launch of any thread belongs to the next one. */
PENSTOCK_API void penstock_step(void);

/*
 * The allocation that holds the address stays in device memory from the next use on until it is unpinned as often as it was pinned, or freed.
 * 0; -ENOENT: Penstock manages no allocation there (a small one, say, or Penstock is not in the process); -EINVAL: it is not pinned.
 */
PENSTOCK_API int penstock_pin(const void *address);
PENSTOCK_API int penstock_unpin(const void *address);

/* The allocation that holds the address won't be used for a while: when memory is short it leaves first. Its next use takes that back. */
PENSTOCK_API int penstock_hint_idle(const void *address);

#undef PENSTOCK_API

#ifndef PENSTOCK_IMPLEMENTATION
#define PENSTOCK_ENOENT (-2)
#define penstock_layer_begin(name, number, direction) (penstock_layer_begin ? penstock_layer_begin((name), (number), (direction)) : (void)0)
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
