/*
 * Following: carries out a plan while the program repeats the step that it was made for. Evictions are begun at the launches that open the gaps,
 * by the eviction machine; reloads by a thread of their own, ahead of the launches that need them.
 *
 * Nothing depends on the plan being right. A span that isn't there when a launch names it is reloaded then; pages that are missing are had by
 * reacting. The lock is the registry's: [locked], [unlocked].
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
 * `named`: the number of the span that an earlier launch named in that place, 0 if that is not known. A plan that comes into force in the middle
 * of a step asks for what it would have seen. Called with the lock held.
 */
void ps_following_open(uint32_t grace, uint64_t (*named)(uint64_t launch, uint32_t place));

/*
 * The plan for pattern `pattern`, from now on: takes the place of an earlier one. Copies what it needs. `numbers[i]`: the number of span i when the
 * step was recorded; `ordinal[k]`: which of its launch's spans use k of the step is; `may_correct`: reload points may be shifted when waits are longer than
 * the plan says. 0 or -ENOMEM. [locked]
 */
int ps_following_install(uint32_t pattern, const struct penstock_step *step, const struct penstock_plan *plan, const uint64_t *numbers,
                         const uint16_t *ordinal, bool may_correct);

/* What the report says of the plan that was installed last for this pattern: it keeps `profile`, of ps_step_profile_make. [locked] */
void ps_following_profile(uint32_t pattern, struct ps_step_profile *profile);

/* The pattern's slot holds another step now, of which nothing is known. [locked] */
void ps_following_forget(uint32_t pattern);

/* What the detector says of the launch that is about to be queued, number `launch`. [locked] */
void ps_following_launch(struct ps_steps_state state, uint64_t launch);

/*
 * The launch of that number, with these spans, has been queued on `stream`. True: evictions come after it, and a tick on the stream now spares
 * them launches that they need not wait for. [locked]
 */
bool ps_following_launched(uint64_t launch, struct ps_span *const *spans, size_t count, struct ps_stream *stream);

/*
 * Spans that the plan in force has begin to leave about now, but for the grace that launches after their last use are given; at most `room`, whose plan has them leave
 * first before others. Who needs pages at once, and would let what is needed next leave in a grace of its own, does better with these. [locked]
 */
size_t ps_following_leaving(struct ps_span **spans, size_t room);

/* Whether a plan is in force: then nothing is evicted ahead of need but by it. [locked] */
bool ps_following_is_on(void);
bool ps_following_moves_spans(void); /* and it has something to do [locked] */

/* Work that was queued under any plan, by the durations that it was made from, ns. [locked] */
uint64_t ps_following_work(void);

/* How far the host may be ahead of the device now, ns of that work; 0: as far as it likes. [locked] */
uint64_t ps_following_lead(void);

/*
 * Whether the evicted span's reload stands in the queue of reloads, and the queue moves: it is then better waited for than begun out of turn, for
 * the plan has put them in the order in which they are needed. False, too, when nobody is there to begin it. [locked]
 */
bool ps_following_will_bring(const struct ps_span *span);

/* The layer that the latest launch lies in as the plan has it; left alone where none is in force. [locked] */
void ps_following_layer(struct ps_recorded_layer *layer);

/* Rounds begun and ended under a plan so far. [locked] */
uint64_t ps_following_steps(void);

/* How long the stream stood still before the launch of that number. [locked] */
void ps_following_waited(uint64_t launch, uint64_t ns);

/* All waits before launches of a lower number have been told. [locked] */
void ps_following_all_told(uint64_t launch);

struct ps_following_summary {
    uint64_t steps;              /* rounds begun and ended under a plan */
    uint64_t predicted_ns;       /* of the plan that was followed most: the step */
    uint64_t mapping_ns;         /* what mappings cost of that */
    uint64_t plain_ns;           /* the same without moves */
    uint64_t exposed_ns;         /* of the last complete step: time in which the stream stood still */
    uint64_t evictions, reloads; /* begun by plans */
    uint64_t put_off;            /* evictions that had to wait for the span to be idle again */
    uint64_t corrections;        /* times that reload points were shifted, or shifted back */
    struct ps_preallocation_figures preparing;
};
void ps_following_summary(struct ps_following_summary *out); /* [locked] or at the end */

/* Adds "reload_waits", "layers" and "profile" of the plan that was followed most, if there is one, to the open object. [locked] or at the end. */
void ps_following_write_layers(struct ps_json *json);

#endif
