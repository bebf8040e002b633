#include "plan/answers.h"

#include <pthread.h>

#include "plan/following.h"
#include "plan/learning.h"
#include "plan/preallocation.h"
#include "residency/plan_table.h"

static void fill_table(void)
{
    ps_plan = (struct ps_plan_table){
        .learns = ps_learning_is_on,
        .is_on = ps_following_is_on,
        .moves_spans = ps_following_moves_spans,
        .will_bring = ps_following_will_bring,
        .leaving = ps_following_leaving,
        .layer = ps_following_layer,
        .allocated = ps_preallocation_allocated,
        .is_making = ps_preallocation_is_making,
        .can_spare = ps_preallocation_can_spare,
    };
}

void ps_plan_answers_open(void)
{
    static pthread_once_t filled = PTHREAD_ONCE_INIT;

    pthread_once(&filled, fill_table);
}
