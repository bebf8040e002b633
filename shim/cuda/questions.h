/*
 * Questions to the driver by whose answers tables of addresses are found: what memory an address
 * leads to, what a graph does. If the driver refuses to answer, a table may be missed. Launches
 * must not rely then on what they are seen to use.
 *
 * Any thread, inside Penstock, no lock.
 */
#ifndef PS_QUESTIONS_H
#define PS_QUESTIONS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * Asks by that call, twice if it is refused: the driver may refuse for a moment. Returns whether
 * the answer is CUDA_SUCCESS. After a refusal ps_questions_are_refused() returns true.
 */
#define PS_TOLD(call)                                                                                                  \
    ({                                                                                                                 \
        CUresult answer_ = (call);                                                                                     \
        if (ps_question_is_refused(answer_))                                                                           \
            answer_ = ps_question_asked_again(call);                                                                   \
        answer_ == CUDA_SUCCESS;                                                                                       \
    })

/*
 * Whether the call was refused. Invalid values and handles are answers: CUDA knows no such memory,
 * for example. The end of the context or of the program, and a kernel's fault, are no refusals.
 */
bool ps_question_is_refused(CUresult result);

/* Notes a second refusal. Returns the result. */
CUresult ps_question_asked_again(CUresult result);

extern atomic_bool ps_questions_refused;

/* Whether a question has been refused for good: each launch must keep every span where it is. */
static inline bool ps_questions_are_refused(void)
{
    return atomic_load_explicit(&ps_questions_refused, memory_order_relaxed);
}

#endif
