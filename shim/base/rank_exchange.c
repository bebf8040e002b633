#include "base/rank_exchange.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/live_directory.h"
#include "base/log.h"
#include "base/output.h"
#include "policy/base/hash.h"

/* Ranks plan within some ms of each other. A step that they wait in is lost to the plan only. */
#define WAIT_NS 400000000u
#define LOOKS_NS 200000u
#define LOOKS_A_MS 5u
#define VAIN_MAX 3u
#define NAME_BYTES 96
/* The path of a runtime directory is far shorter. If it is not, no note is written. */
#define PATH_BYTES 256

/* The start of a note, before its bytes. */
struct told {
    struct ps_live_note note;
    uint64_t job, rank, bytes;
    struct ps_rank_exchange_key key;
};

/* Constant once set up, except in a forked child. */
static struct {
    struct ps_live_identity identity;
    uint64_t job;
    uint32_t rank, peers;
} self;

/*
 * By device and subject: the notes that this rank has written. Only the device's thread writes
 * here.
 */
static struct {
    char path[PATH_BYTES]; /* path of the note; "": none */
    unsigned in_vain;      /* number of exchanges in a row without an answer */
} so_far[PS_RANK_EXCHANGE_DEVICES_MAX][PS_RANK_EXCHANGE_ABOUT];

static uint64_t hash_of(uint64_t hash, const char *text)
{
    for (; text && *text; text++)
        hash = ps_hash_u64(hash ^ (unsigned char)*text);
    return ps_hash_u64(hash);
}

void ps_rank_exchange_open(const struct ps_ranks *ranks, char *(*variable)(const char *name))
{
    struct ps_live_identity parent;
    const char *port = variable("MASTER_PORT");

    if (!ranks->several || ranks->local_processes < 2 || ps_live_identity_of(getpid(), &self.identity))
        return;
    if (port && *port)
        self.job = hash_of(hash_of(1, variable("MASTER_ADDR")), port);
    else if (!ps_live_identity_of(getppid(), &parent))
        self.job = ps_hash_u64(ps_hash_u64(parent.pid) ^ parent.start_ticks);
    else
        return;
    self.rank = ranks->rank;
    self.peers = ranks->local_processes - 1;
}

/*
 * Writes this device's note, in place of its earlier one on the same subject. Returns 0 or -errno.
 */
static int tell(int directory, const char *directory_path, const struct told *told, const void *mine)
{
    char *path = so_far[told->key.device][told->key.about].path, whose[PS_LIVE_NAME_BYTES], made[NAME_BYTES + 8];
    const char *name;

    if (strlen(directory_path) > PATH_BYTES - NAME_BYTES)
        return -ENAMETOOLONG;
    ps_live_name(whose, &told->note.identity);
    snprintf(path, PATH_BYTES, "%.*s/" PS_LIVE_NOTE "%s-%u-%u", PATH_BYTES - NAME_BYTES, directory_path, whose,
             told->key.device, (unsigned)told->key.about);
    name = strrchr(path, '/') + 1;
    snprintf(made, sizeof made, "%.*s.new", NAME_BYTES, name);
    unlinkat(directory, made, 0); /* left by an earlier process of this number */
    int fd = openat(directory, made, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int error = ps_output_write_whole(fd, (const char *)told, sizeof *told);
    if (!error)
        error = ps_output_write_whole(fd, mine, told->bytes);
    if (!error && renameat(directory, made, directory, name))
        error = -errno;
    if (error)
        unlinkat(directory, made, 0);
    close(fd);
    return error;
}

/*
 * Returns whether note `a` answers `own`. A note without bytes only says that the rank is there.
 * Then a later number will do, because the later note has replaced the earlier one.
 */
static bool is_about_the_same(const struct told *a, const struct told *own)
{
    const struct ps_rank_exchange_key *key = &a->key, *wanted = &own->key;

    return a->bytes == own->bytes && key->about == wanted->about && key->device == wanted->device &&
           key->of == wanted->of &&
           (key->number == wanted->number || (own->bytes == 0 && key->number > wanted->number));
}

/*
 * Returns whether the file holds a peer's note under the key. Then fills `theirs` and `*rank`.
 * Deletes notes of processes that have ended.
 */
static bool hear(int directory, const char *name, const struct told *own, void *theirs, uint64_t *rank)
{
    struct told told;
    struct stat status;

    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ours = pread(fd, &told, sizeof told, 0) == (ssize_t)sizeof told &&
                !memcmp(told.note.magic, PS_LIVE_NOTE_MAGIC, sizeof told.note.magic) && !fstat(fd, &status) &&
                S_ISREG(status.st_mode) && told.note.identity.pid_namespace == own->note.identity.pid_namespace;
    bool left_over = ours && !ps_live_identity_lives(&told.note.identity);
    if (left_over)
        unlinkat(directory, name, 0);
    bool heard = ours && !left_over && told.job == own->job && told.rank != own->rank &&
                 is_about_the_same(&told, own) && pread(fd, theirs, told.bytes, sizeof told) == (ssize_t)told.bytes;
    close(fd);
    *rank = told.rank;
    return heard;
}

struct hearing {
    const struct told *own;
    uint64_t *of; /* the ranks whose notes were read */
    uint32_t heard;
    void *theirs;
    ps_rank_exchange_heard_fn fn;
    void *ctx;
};

static bool is_heard(const struct hearing *h, uint64_t rank)
{
    for (uint32_t i = 0; i < h->heard; i++)
        if (h->of[i] == rank)
            return true;
    return false;
}

static void hear_all(struct hearing *h, int directory)
{
    const struct dirent *entry;
    int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = again < 0 ? NULL : fdopendir(again);
    uint64_t rank;

    if (!listing && again >= 0)
        close(again);
    while (listing && h->heard < self.peers && (entry = readdir(listing))) {
        if (strncmp(entry->d_name, PS_LIVE_NOTE, sizeof PS_LIVE_NOTE - 1) != 0 ||
            !hear(directory, entry->d_name, h->own, h->theirs, &rank) || is_heard(h, rank))
            continue;
        h->of[h->heard++] = rank;
        if (h->fn)
            h->fn(h->ctx, h->theirs);
    }
    if (listing)
        closedir(listing);
}

/*
 * Two clocks: only the host's matters, because nothing is queued during the wait. The plan to be
 * made waits for it. At a meeting for the link's measurement, evictions wait, too. They wait as
 * long as one rank takes more time than the others to queue its copies. If a rank is gone, they
 * wait WAIT_NS once.
 */
static void hear_until_all(struct hearing *h, int directory, bool (*is_over)(void))
{
    static const struct timespec a_moment = {.tv_nsec = LOOKS_NS};
    const uint64_t until = ps_now_ns() + WAIT_NS;

    for (unsigned looks = 1;; looks++) {
        hear_all(h, directory);
        if (h->heard >= self.peers || ps_now_ns() >= until || (looks % LOOKS_A_MS == 0 && is_over()))
            return;
        nanosleep(&a_moment, NULL);
    }
}

uint32_t ps_rank_exchange_exchange(struct ps_rank_exchange_key key, const void *mine, size_t bytes,
                                   bool (*is_over)(void), ps_rank_exchange_heard_fn heard, void *ctx)
{
    char path[PS_LIVE_PATH_BYTES];
    const uint32_t peers = self.peers;

    if (!peers || key.device >= PS_RANK_EXCHANGE_DEVICES_MAX || so_far[key.device][key.about].in_vain >= VAIN_MAX)
        return 0;
    unsigned *in_vain = &so_far[key.device][key.about].in_vain;
    const struct told own = {
        .note = {PS_LIVE_NOTE_MAGIC, self.identity}, .job = self.job, .rank = self.rank, .bytes = bytes, .key = key};
    struct hearing h = {
        .own = &own, .fn = heard, .ctx = ctx, .of = calloc(peers, sizeof *h.of), .theirs = malloc(bytes + 1)};
    int directory = h.of && h.theirs ? ps_live_directory_open_any(path) : -ENOMEM;
    int error = directory < 0 ? directory : tell(directory, path, &own, mine);
    if (!error)
        hear_until_all(&h, directory, is_over);
    if (directory >= 0)
        close(directory);
    *in_vain = h.heard ? 0 : *in_vain + 1;
    if (error)
        ps_log_debug(POLICY, "this rank's timings can't be passed to the other ranks: %s", strerror(-error));
    free(h.of);
    free(h.theirs);
    return h.heard;
}

void ps_rank_exchange_close(void)
{
    if (self.identity.pid != (uint64_t)getpid())
        return;
    for (unsigned d = 0; d < PS_RANK_EXCHANGE_DEVICES_MAX; d++)
        for (unsigned about = 0; about < PS_RANK_EXCHANGE_ABOUT; about++)
            if (*so_far[d][about].path)
                unlink(so_far[d][about].path);
}

void ps_rank_exchange_disown(void)
{
    self.peers = 0;
    self.identity.pid = 0;
}
