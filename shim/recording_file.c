#include "recording_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "log.h"
#include "process.h"
#include "recording.h"

static void write_text(void *file, const char *text, size_t bytes)
{
    fwrite(text, 1, bytes, file);
}

void ps_recording_file_write(const struct penstock_step *step)
{
    char temporary[PS_SETTINGS_PATH_BYTES + 32];

    if (!*ps_settings.recording)
        return;
    snprintf(temporary, sizeof temporary, "%s.%d.tmp", ps_settings.recording, (int)getpid());
    void *workspace = malloc(ps_recording_print_bytes(step));
    FILE *file = workspace ? fopen(temporary, "we") : NULL;
    if (file)
        ps_recording_print(step, workspace, write_text, file);
    free(workspace);
    if (file && !fclose(file) && !rename(temporary, ps_settings.recording))
        return;
    ps_log_warn_once(POLICY, "PENSTOCK_RECORDING=%s: a step could not be written (%m); name a file that can be", ps_settings.recording);
    unlink(temporary);
}
