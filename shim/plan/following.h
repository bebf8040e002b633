/*
 * Following: carries out a plan while the program repeats the step that it was made for. Evictions
 * begin at the launches that open the gaps, and the eviction machine makes them. A thread of its
 * own begins reloads ahead of the launches that need them.
 *
 * Nothing depends on the plan being right. A launch that names an evicted span reloads it then, and
 * missing pages are found by reacting. The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_FOLLOWING_H
#define PS_FOLLOWING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "memory/span.h"
#include "penstock/policy.h"
#include "plan/preallocation.h"
#include "plan/step_profile.h"
#include "policy/recording/recorder.h"
#include "policy/steps/detector.h"

/*
 * Opens following. `named` returns the number of the span that an earlier launch named in that
 * place; 0: not known. A plan that comes into force in the middle of a step asks it about the
 * launches before. `named` is called with the lock held.
 */
void ps_following_open(uint32_t grace, uint64_t (*named)(uint64_t launch, uint32_t place));

/*
 * Puts the plan for `pattern` into force, in place of an earlier one. Copies the data that it
 * needs. `numbers[i]` is the number of span i when the step was recorded. `ordinal[k]` is the index
 * of use k's span among those of its launch. `may_correct`: reload points may be shifted when waits
 * are longer than the plan says. Returns 0 or -ENOMEM. [locked]
 */
int ps_following_install(uint32_t pattern, const struct penstock_step *step, const struct penstock_plan *plan,
                         const uint64_t *numbers, const uint16_t *ordinal, bool may_correct);

/*
 * Gives the report the profile of the plan installed last for this pattern. Takes ownership of
 * `profile`, which ps_step_profile_make made. [locked]
 */
void ps_following_profile(uint32_t pattern, struct ps_step_profile *profile);

/* The pattern's place now holds another step, of which nothing is known. [locked] */
void ps_following_forget(uint32_t pattern);

/* Takes the detector's state at launch `launch`, which is about to be queued. [locked] */
void ps_following_launch(struct ps_steps_state state, uint64_t launch);

/*
 * Launch `launch`, with these spans, has been queued on `stream`. Returns true if evictions come
 * after it. A tick on the stream now spares them launches that they need not wait for. [locked]
 */
bool ps_following_launched(uint64_t launch, struct ps_span *const *spans, size_t count, struct ps_stream *stream);

/*
 * Finds at most `room` spans that the plan would evict now, but for the grace after a last use.
 * Those that leave first in the step come first. A caller that needs pages at once should take
 * these spans. By itself it would evict spans that are needed next. [locked]
 */
size_t ps_following_leaving(struct ps_span **spans, size_t room);

/* Returns whether a plan is in force. Then only the plan evicts ahead of need. [locked] */
bool ps_following_is_on(void);
bool ps_following_moves_spans(void); /* Returns whether the plan in force has moves. [locked] */

/*
 * Returns the work queued under any plan, in ns by the durations that the plans were made from.
 * [locked]
 */
uint64_t ps_following_work(void);

/*
 * Returns how far the host may be ahead of the device now, in ns of that work; 0: no limit.
 * [locked]
 */
uint64_t ps_following_run_ahead(void);

/*
 * Returns whether the evicted span's reload stands in the queue of reloads, and the queue moves.
 * Then the caller should wait rather than begin it out of turn: the plan orders reloads by need.
 * Returns false, too, when no thread can begin it. [locked]
 */
bool ps_following_will_bring(const struct ps_span *span);

/*
 * Sets the layer of the latest launch as the plan has it. Leaves it alone if no plan is in force.
 * [locked]
 */
void ps_following_layer(struct ps_recorded_layer *layer);

/* Returns the number of rounds begun and ended under a plan. [locked] */
uint64_t ps_following_steps(void);

/* The stream waited `ns` before launch `launch`. [locked] */
void ps_following_waited(uint64_t launch, uint64_t ns);

/* All waits before launches of a lower number have been reported. [locked] */
void ps_following_all_told(uint64_t launch);

struct ps_following_summary {
    uint64_t steps;              /* rounds begun and ended under a plan */
    uint64_t predicted_ns;       /* of the plan that was followed most: its step */
    uint64_t mapping_ns;         /* the part of it that mappings cost */
    uint64_t plain_ns;           /* the same step without moves */
    uint64_t exposed_ns;         /* of the last complete step: time in which the stream waited */
    uint64_t evictions, reloads; /* begun by plans */
    uint64_t put_off;            /* evictions that had to wait until the span was idle again */
    uint64_t corrections;        /* times that reload points were shifted, or shifted back */
    struct ps_preallocation_figures preallocation;
};
void ps_following_summary(struct ps_following_summary *out); /* [locked] or at the end */

/*
 * Adds "reload_waits", "layers" and "profile" of the plan that was followed most to the open
 * object. Adds nothing if no plan was followed. [locked] or at the end.
 */
void ps_following_write_layers(struct ps_json *json);

#endif
