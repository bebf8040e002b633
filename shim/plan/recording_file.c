#include "plan/recording_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/output.h"
#include "base/settings.h"
#include "policy/recording/text.h"

static void write_text(void *file, const char *text, size_t bytes)
{
    fwrite(text, 1, bytes, file);
}

static int print_step(FILE *file, const void *step)
{
    void *workspace = malloc(ps_recording_print_bytes(step));

    if (!workspace)
        return -ENOMEM;
    ps_recording_print(step, workspace, write_text, file);
    free(workspace);
    return 0;
}

void ps_recording_file_write(const struct penstock_step *step)
{
    int error = *ps_settings.recording ? ps_output_put_text(ps_settings.recording, print_step, step) : 0;

    if (!error)
        return;
    errno = -error;
    ps_log_warn_once(POLICY,
                     "PENSTOCK_RECORDING=%s: a step could not be written (%m); name a file that can be written to",
                     ps_settings.recording);
}
