/*
 * The live page: a reader never sees half of a write, in this process or in another. And a reader's
 * answer to an invalid record.
 */
#include "base/live_page.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

#define WRITES 200000u
#define READERS 2

static struct ps_live_page *page;
static atomic_bool over;

/* Each word of a write is the write's number. The next write is always already on the way. */
static void *write_on(void *unused)
{
    uint64_t word[PS_LIVE_RECORD_WORDS];

    (void)unused;
    for (uint64_t n = 1; n <= WRITES; n++) {
        for (unsigned i = 0; i < PS_LIVE_RECORD_WORDS; i++)
            word[i] = n;
        ps_live_record_write(&page->process, word, PS_LIVE_RECORD_WORDS);
    }
    atomic_store(&over, true);
    return NULL;
}

/*
 * Returns the number of reads that were torn or went back. `seen` is the number of different writes
 * seen.
 */
static long read_on(uint64_t *seen)
{
    uint64_t word[PS_LIVE_RECORD_WORDS], last = 0;
    long wrong = 0;

    *seen = 0;
    while (last < WRITES) {
        if (!ps_live_record_read(&page->process, word, PS_LIVE_RECORD_WORDS))
            continue; /* not yet, or never at rest for so long */
        for (unsigned i = 1; i < PS_LIVE_RECORD_WORDS; i++)
            wrong += word[i] != word[0];
        wrong += word[0] < last;
        *seen += word[0] != last;
        last = word[0];
    }
    return wrong;
}

static void *read_in_thread(void *wrong)
{
    uint64_t seen;

    *(long *)wrong = read_on(&seen);
    return NULL;
}

enum seen_by_child { SOME, TORN, TOO_FEW };

/* Writes while threads and a child process read the same memory. Returns what the child saw. */
static int read_while_written(void)
{
    pthread_t writer, reader[READERS];
    long wrong[READERS];
    int status = -1;

    pid_t child = fork();
    if (child == 0) {
        uint64_t seen;
        long torn = read_on(&seen);
        _exit(torn ? TORN : seen < 2 ? TOO_FEW : SOME);
    }
    for (int i = 0; i < READERS; i++)
        EXPECT_INT(0, pthread_create(&reader[i], NULL, read_in_thread, &wrong[i]));
    EXPECT_INT(0, pthread_create(&writer, NULL, write_on, NULL));
    pthread_join(writer, NULL);
    for (int i = 0; i < READERS; i++) {
        pthread_join(reader[i], NULL);
        EXPECT_INT(0, wrong[i]);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status));
    EXPECT_U64(2 * WRITES, atomic_load(&page->process.sequence));
    return WEXITSTATUS(status);
}

static void test_no_read_is_torn(void)
{
    int seen = read_while_written();

    /* On a busy machine the child may get no processor until all is written. */
    for (int tries = 1; seen == TOO_FEW && tries < 10; tries++) {
        memset(page, 0, sizeof *page);
        seen = read_while_written();
    }
    EXPECT_INT(SOME, seen);
}

static void test_what_is_no_record(void)
{
    uint64_t word[4] = {7, 7, 7, 7};

    EXPECT(!ps_live_record_read(&page->device[3], word, 4)); /* never written */
    ps_live_record_write(&page->device[3], word, 4);
    EXPECT(ps_live_record_read(&page->device[3], word, 4));
    atomic_store(&page->device[3].sequence, 3); /* the writer died during the write */
    EXPECT(!ps_live_record_read(&page->device[3], word, 4));
}

static void test_the_layout_is_that_of_its_version(void)
{
    /* A change of one of these requires a new version of the layout. */
    EXPECT_U64(1, PS_LIVE_VERSION);
    EXPECT_U64(0, offsetof(struct ps_live_header, magic));
    EXPECT_U64(8, offsetof(struct ps_live_header, version));
    EXPECT_U64(12, offsetof(struct ps_live_header, bytes));
    EXPECT_U64(16, offsetof(struct ps_live_header, identity));
    EXPECT_U64(3688, sizeof(struct ps_live_header));
    EXPECT_U64(4096, offsetof(struct ps_live_page, process));
    EXPECT_U64(4096 + 512, offsetof(struct ps_live_page, device));
    EXPECT_U64(15, PS_LIVE_WORDS(struct ps_live_process));
    EXPECT_U64(21, PS_LIVE_WORDS(struct ps_live_device));
}

int main(void)
{
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 1;
    test_no_read_is_torn();
    test_what_is_no_record();
    test_the_layout_is_that_of_its_version();
    return expect_status();
}
