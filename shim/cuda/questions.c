#include "cuda/questions.h"

#include "base/log.h"
#include "cuda/driver.h"

atomic_bool ps_questions_refused;

bool ps_question_is_refused(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_INVALID_HANDLE &&
           result != CUDA_ERROR_LOSSY_QUERY && result != CUDA_ERROR_NOT_INITIALIZED && !ps_cuda_has_ended(result) &&
           !ps_cuda_is_fault(result);
}

CUresult ps_question_asked_again(CUresult result)
{
    if (ps_question_is_refused(result) && !atomic_exchange(&ps_questions_refused, true))
        ps_log_warn(TRACER,
                    "the driver does not tell what an address or a graph is (error %d), so kernels may use memory that "
                    "is not seen: from now on each launch keeps every span where it is; see `penstock doctor`",
                    result);
    return result;
}
