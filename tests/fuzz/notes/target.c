/*
 * The note of another rank, as a file of any bytes. Its numbers are taken only if it is a whole
 * note of a living peer under the same key; and no more bytes are taken than this rank has room
 * for.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct fuzz_input file;
static bool lives;
static unsigned removed;

static ssize_t read_file(char *to, size_t bytes, size_t offset)
{
    size_t left = offset < file.left ? file.left - offset : 0;

    bytes = bytes < left ? bytes : left;
    if (bytes)
        memcpy(to, file.at + offset, bytes);
    return (ssize_t)bytes;
}

static int file_status(struct stat *out)
{
    *out = (struct stat){.st_mode = S_IFREG | 0600, .st_size = (off_t)file.left};
    return 0;
}

#define openat(directory, name, flags, ...) ((void)(directory), (void)(name), 3)
#define pread(fd, to, bytes, offset) ((void)(fd), read_file((char *)(to), bytes, (size_t)(offset)))
#define fstat(fd, out) ((void)(fd), file_status(out))
#define unlinkat(directory, name, flags) ((void)(directory), (void)(name), (void)removed++)
#define close(fd) (void)(fd)
#include "shim/base/rank_exchange.c"
#undef openat
#undef pread
#undef fstat
#undef unlinkat
#undef close

/* Stand in for the modules below, which this target's reads do not need. */
bool ps_live_identity_lives(const struct ps_live_identity *of)
{
    (void)of;
    return lives;
}

int ps_live_identity_of(pid_t pid, struct ps_live_identity *out)
{
    (void)pid;
    (void)out;
    return -ESRCH;
}

void ps_live_name(char name[PS_LIVE_NAME_BYTES], const struct ps_live_identity *of)
{
    (void)of;
    *name = '\0';
}

int ps_live_directory_open_any(char path[PS_LIVE_PATH_BYTES])
{
    (void)path;
    return -ENOENT;
}

int ps_output_write_whole(int fd, const char *text, size_t bytes)
{
    (void)fd;
    (void)text;
    (void)bytes;
    return -EIO;
}

/* This rank's own note: of the device 1, and with as many bytes as the input says. */
static struct told own_note(uint8_t bytes)
{
    return (struct told){.note = {PS_LIVE_NOTE_MAGIC, {.pid = 1, .pid_namespace = 2}},
                         .job = 3,
                         .rank = 0,
                         .bytes = bytes,
                         .key = {PS_RANK_EXCHANGE_TIMES, 1, 4, 5}};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    const uint8_t how = fuzz_u8(&in);
    const struct told own = own_note(fuzz_u8(&in) % 40);
    struct told note;
    uint64_t rank = 99;
    char *theirs = fuzz_allocate(own.bytes);

    /* Where the input says so, the note is this rank's own, but for what the input changes. */
    uint8_t *made = fuzz_allocate(sizeof own + in.left);
    memcpy(made, &own, sizeof own);
    for (size_t i = 0; how & 2 && in.left > 1 && i < 8; i++)
        made[fuzz_u8(&in) % sizeof own] ^= fuzz_u8(&in);
    if (in.left)
        memcpy(made + (how & 2 ? sizeof own : 0), in.at, in.left);
    file = (struct fuzz_input){made, in.left + (how & 2 ? sizeof own : 0)};
    lives = how & 1;
    removed = 0;
    bool heard = hear(-1, "told-1-2-1-1", &own, theirs, &rank);
    fuzz_require(removed <= 1 && !(removed && (lives || heard)));
    if (heard) {
        fuzz_require(file.left >= sizeof note + own.bytes);
        memcpy(&note, file.at, sizeof note);
        fuzz_require(!memcmp(note.note.magic, "penpeer1", 8) && note.note.identity.pid_namespace == 2);
        fuzz_require(note.job == 3 && note.rank == rank && rank != 0 && note.bytes == own.bytes);
        fuzz_require(note.key.about == own.key.about && note.key.device == 1 && note.key.of == 4);
        fuzz_require(note.key.number == 5 || (!own.bytes && note.key.number > 5));
        fuzz_require(!own.bytes || !memcmp(theirs, file.at + sizeof note, own.bytes));
    }
    free(made);
    free(theirs);
    return 0;
}
