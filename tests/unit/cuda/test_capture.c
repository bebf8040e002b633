/*
 * What is said where the driver refuses a capture mode: nothing of a context that has ended, as at
 * the end of a process, or in which a kernel failed, and one line of any other refusal.
 */
#include <stdio.h>
#include <unistd.h>

#include "cuda/capture_mode.h"
#include "cuda/driver.h"
#include "expect.h"

static CUresult answer;

static CUresult CUDAAPI exchange(CUstreamCaptureMode *mode)
{
    (void)mode;
    return answer;
}

/* Returns the bytes that were written on stderr for a thread whose modes the driver refuses so. */
static long said_of(CUresult refusal)
{
    FILE *said = tmpfile();
    const int before = dup(STDERR_FILENO);

    answer = refusal;
    dup2(fileno(said), STDERR_FILENO);
    ps_capture_mode_relax_for_good();
    dup2(before, STDERR_FILENO);
    close(before);
    fseek(said, 0, SEEK_END);
    const long bytes = ftell(said);
    fclose(said);
    return bytes;
}

int main(void)
{
    ps_cu.cuThreadExchangeStreamCaptureMode = exchange;
    EXPECT_INT(0, said_of(CUDA_SUCCESS));
    EXPECT_INT(0, said_of(CUDA_ERROR_DEINITIALIZED));
    EXPECT_INT(0, said_of(CUDA_ERROR_CONTEXT_IS_DESTROYED));
    EXPECT_INT(0, said_of(CUDA_ERROR_INVALID_CONTEXT));
    EXPECT_INT(0, said_of(CUDA_ERROR_ILLEGAL_ADDRESS));
    EXPECT(said_of(CUDA_ERROR_UNKNOWN) > 0);
    EXPECT_INT(0, said_of(CUDA_ERROR_UNKNOWN)); /* only once */
    return expect_status();
}
