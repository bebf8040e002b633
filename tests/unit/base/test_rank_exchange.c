/*
 * The exchange between ranks of a machine: real processes, each with its rank, in a directory of
 * the test's own. Ranks ignore other jobs, other keys and dead processes.
 */
#include "base/rank_exchange.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/live_directory.h"
#include "expect.h"

static char runtime[] = "/dev/shm/penstock-unit.XXXXXX", directory[64];
static const char *port = "29500";

static char *variable(const char *name)
{
    return !strcmp(name, "MASTER_PORT") ? (char *)port : NULL;
}

static void be_rank(uint32_t rank, uint32_t processes)
{
    const struct ps_ranks ranks = {.several = true, .rank = rank, .processes = processes, .local_processes = processes};

    ps_rank_exchange_open(&ranks, variable);
}

static bool never(void)
{
    return false;
}

static bool at_once(void)
{
    return true;
}

static void add(void *ctx, const void *theirs)
{
    uint64_t *sum = ctx, value;

    memcpy(&value, theirs, sizeof value);
    *sum += value;
}

static const struct ps_rank_exchange_key key = {PS_RANK_EXCHANGE_TIMES, 0, 77, 1234},
                                         other_number = {PS_RANK_EXCHANGE_TIMES, 0, 77, 1235},
                                         other_device = {PS_RANK_EXCHANGE_TIMES, 1, 77, 1234},
                                         other_about = {PS_RANK_EXCHANGE_LINK, 0, 77, 1234};

static uint32_t tell(struct ps_rank_exchange_key of, uint64_t value, uint64_t *sum)
{
    *sum = 0;
    return ps_rank_exchange_exchange(of, &value, sizeof value, never, add, sum);
}

/* Runs `body` in a process of its own. */
static void in_child(int (*body)(uint32_t rank), uint32_t rank, pid_t *pid)
{
    *pid = fork();
    if (*pid == 0)
        _exit(body(rank));
}

/* Returns the process's exit status; -1 if it was killed. */
static int status_of(pid_t pid)
{
    int status;

    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static unsigned files(void)
{
    unsigned found = 0;
    DIR *listing = opendir(directory);

    for (const struct dirent *entry; listing && (entry = readdir(listing));)
        found += entry->d_name[0] != '.';
    if (listing)
        closedir(listing);
    return found;
}

/*
 * Three ranks meet three times. Each time, each rank hears the two others, and hears nothing twice.
 */
static int three_times(uint32_t rank)
{
    uint64_t sum;

    be_rank(rank, 3);
    for (uint64_t round = 0; round < 3; round++) {
        const struct ps_rank_exchange_key of = {PS_RANK_EXCHANGE_TIMES, 0, 5, round};
        const uint64_t own = round + (UINT64_C(1) << (8 * rank)),
                       all = 3 * round + 0x10101; /* each rank's own bit shows a value that was heard twice */
        if (tell(of, own, &sum) != 2 || sum != all - own)
            return 1 + (int)round;
        usleep(20000); /* ranks also work in between; the others have read the value by then */
    }
    ps_rank_exchange_close();
    return 0;
}

/* Meetings without a pause. No rank is missed because it goes on before another has seen it. */
static int meet_often(uint32_t rank)
{
    be_rank(rank, 3);
    for (uint64_t number = 0; number < 200; number++)
        if (ps_rank_exchange_exchange((struct ps_rank_exchange_key){PS_RANK_EXCHANGE_LINK, 0, 5, number}, NULL, 0,
                                      never, NULL, NULL) != 2)
            return 1;
    usleep(20000);
    ps_rank_exchange_close();
    return 0;
}

static void test_ranks_hear_each_other(int (*body)(uint32_t rank))
{
    pid_t pid[3];

    for (uint32_t rank = 0; rank < 3; rank++)
        in_child(body, rank, &pid[rank]);
    for (uint32_t rank = 0; rank < 3; rank++)
        EXPECT_INT(0, status_of(pid[rank]));
    EXPECT_U64(0, files());
}

/* Tells one value of each kind and stays, like a rank that trains on. */
static int tell_and_stay(uint32_t rank)
{
    uint64_t sum, value = 5;

    be_rank(rank, 2);
    for (unsigned device = 0; device < 2; device++)
        ps_rank_exchange_exchange((struct ps_rank_exchange_key){PS_RANK_EXCHANGE_TIMES, device, 77, device ? 1 : 1234},
                                  &value, sizeof value, at_once, add, &sum);
    pause();
    return 0;
}

static void wait_for_files(unsigned count)
{
    for (unsigned ms = 0; files() < count && ms < 5000; ms++)
        usleep(1000);
    EXPECT(files() >= count);
}

static int hear_only_what_is_meant(uint32_t rank)
{
    uint64_t sum, value = 1, begin;
    uint32_t short_value = 1;

    be_rank(rank, 2);
    if (tell(key, 1, &sum) != 1 || sum != 5)
        return 1;
    /* Each of these waits only for a millisecond. */
    if (ps_rank_exchange_exchange(other_number, &value, sizeof value, at_once, add, &sum) ||
        ps_rank_exchange_exchange(other_device, &value, sizeof value, at_once, add, &sum) ||
        ps_rank_exchange_exchange(other_about, &value, sizeof value, at_once, add, &sum))
        return 2;
    if (ps_rank_exchange_exchange(key, &short_value, sizeof short_value, at_once, add, &sum))
        return 3;
    if (tell(key, 1, &sum) != 1) /* it still exists, and the failed tries are forgotten */
        return 4;
    /* The first three tries fail after a wait each; later ones don't wait. */
    for (int i = 0; i < 3; i++) {
        begin = ps_now_ns();
        if (tell(other_number, 1, &sum) || ps_now_ns() - begin < 300000000u)
            return 5;
    }
    begin = ps_now_ns();
    if (tell(key, 1, &sum) || ps_now_ns() - begin > 200000000u)
        return 6;
    ps_rank_exchange_close();
    return 0;
}

static int of_another_job(uint32_t rank)
{
    uint64_t sum;

    port = "29501";
    be_rank(rank, 2);
    bool heard = tell(key, 1, &sum);
    ps_rank_exchange_close();
    return heard;
}

/* A child of a rank that uses the GPU too, with its parent's variables. */
static int of_the_same_rank(uint32_t rank)
{
    uint64_t sum, value = 1;

    be_rank(rank, 2);
    bool heard = ps_rank_exchange_exchange(key, &value, sizeof value, at_once, add, &sum);
    ps_rank_exchange_close();
    return heard;
}

static int started_by_the_same(uint32_t rank)
{
    uint64_t sum;

    port = NULL;
    be_rank(rank, 2);
    bool heard = tell(key, rank, &sum) == 1;
    usleep(20000);
    ps_rank_exchange_close();
    return heard ? 0 : 1;
}

/*
 * A child of a rank, like a DataLoader's worker. It tells nothing, and removes nothing of its
 * parent's.
 */
static int forks(uint32_t rank)
{
    uint64_t sum, value = 1;

    be_rank(rank, 2);
    ps_rank_exchange_exchange(key, &value, sizeof value, at_once, add, &sum);
    pid_t pid = fork();
    if (pid == 0) {
        ps_rank_exchange_disown();
        if (tell(key, 1, &sum))
            _exit(1);
        ps_rank_exchange_close();
        _exit(0);
    }
    int status = status_of(pid);
    return status ? status : files() == 1 ? (ps_rank_exchange_close(), 0) : 2;
}

static void test_others_are_not_heard(void)
{
    pid_t stays, pid;

    in_child(tell_and_stay, 1, &stays);
    wait_for_files(2);
    in_child(hear_only_what_is_meant, 0, &pid);
    EXPECT_INT(0, status_of(pid));
    in_child(of_another_job, 0, &pid);
    EXPECT_INT(0, status_of(pid));
    in_child(of_the_same_rank, 1, &pid);
    EXPECT_INT(0, status_of(pid));
    EXPECT_U64(2, files());

    /* A killed rank leaves its files. No rank hears them, and the next look-up removes them. */
    kill(stays, SIGKILL);
    EXPECT_INT(-1, status_of(stays));
    EXPECT_U64(2, files());
    in_child(of_another_job, 0, &pid);
    EXPECT_INT(0, status_of(pid));
    EXPECT_U64(0, files());
}

/* Looks through the directory, as `penstock top` and each process that makes a page do. */
static void look_through(void)
{
    char path[PS_LIVE_PATH_BYTES];
    int fd = ps_live_directory_open(0, false, path);

    EXPECT(fd >= 0);
    ps_live_each(fd, NULL, NULL);
    close(fd);
}

static void test_what_the_dead_have_told(void)
{
    struct ps_live_identity identity;
    char whose[PS_LIVE_NAME_BYTES], begun[PS_LIVE_PATH_BYTES];
    pid_t stays;

    in_child(tell_and_stay, 1, &stays);
    wait_for_files(2);
    EXPECT_INT(0, ps_live_identity_of(stays, &identity));
    ps_live_name(whose, &identity);
    snprintf(begun, sizeof begun, "%s/told-%s-0-1.new", directory, whose);
    close(open(begun, O_WRONLY | O_CREAT, 0600)); /* its writer was killed before it wrote anything */
    look_through();
    EXPECT_U64(3, files()); /* it lives */
    kill(stays, SIGKILL);
    EXPECT_INT(-1, status_of(stays));
    EXPECT_U64(3, files());
    look_through();
    EXPECT_U64(0, files());

    /* Processes of another pid namespace are unknown. A file that is no note is left alone. */
    snprintf(begun, sizeof begun, "%s/told-%d-1-0-0", directory, (int)stays);
    close(open(begun, O_WRONLY | O_CREAT, 0600));
    look_through();
    EXPECT_U64(1, files());
    unlink(begun);

    /* The number may belong to another process by now; the start of the file tells. */
    struct ps_live_note note = {.magic = PS_LIVE_NOTE_MAGIC};
    EXPECT_INT(0, ps_live_identity_of(getpid(), &note.identity));
    ps_live_name(whose, &note.identity);
    for (int i = 0; i < 2; i++) {
        snprintf(begun, sizeof begun, "%s/told-%s-0-0", directory, whose);
        int fd = open(begun, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        EXPECT_INT(sizeof note, write(fd, &note, sizeof note));
        close(fd);
        look_through();
        EXPECT_U64(i ? 0 : 1, files());
        note.identity.start_ticks++;
    }
}

static void test_jobs_without_a_port(void)
{
    pid_t pid[2];

    for (uint32_t rank = 0; rank < 2; rank++)
        in_child(started_by_the_same, rank, &pid[rank]);
    for (uint32_t rank = 0; rank < 2; rank++)
        EXPECT_INT(0, status_of(pid[rank]));
}

static void test_a_forked_child(void)
{
    pid_t pid;

    in_child(forks, 0, &pid);
    EXPECT_INT(0, status_of(pid));
    EXPECT_U64(0, files());
}

/* Nothing is told if there is no other rank, or no directory that can be trusted. */
static int alone(uint32_t rank)
{
    uint64_t sum;

    (void)rank;
    be_rank(0, 1);
    if (tell(key, 1, &sum) || files())
        return 1;
    chmod(directory, 0755);
    be_rank(0, 2);
    const bool heard = tell(key, 1, &sum);
    chmod(directory, 0700);
    return heard || files() ? 2 : 0;
}

static void test_alone(void)
{
    pid_t pid;

    in_child(alone, 0, &pid);
    EXPECT_INT(0, status_of(pid));
}

int main(void)
{
    if (!mkdtemp(runtime))
        return 1;
    snprintf(directory, sizeof directory, "%s/penstock", runtime);
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    test_ranks_hear_each_other(three_times);
    test_ranks_hear_each_other(meet_often);
    test_others_are_not_heard();
    test_what_the_dead_have_told();
    test_jobs_without_a_port();
    test_a_forked_child();
    test_alone();
    rmdir(directory);
    EXPECT(!rmdir(runtime));
    return expect_status();
}
