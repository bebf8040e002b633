/*
 * The cost of a preloaded library for a command that does not use it. Runs the command to its end
 * with and without the library, in turn.
 *
 * usage: bench_start ROUNDS LIBRARY COMMAND [ARGUMENT]...
 *
 * Prints one line of JSON: medians and lowest times, each way, in ns.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

extern char **environ;

/* Returns the environment with LD_PRELOAD set to the library. */
static char **preloaded_environment(const char *library)
{
    size_t count = 0, room = strlen("LD_PRELOAD=") + strlen(library) + 1;

    while (environ[count])
        count++;
    char **made = calloc(count + 2, sizeof *made);
    char *preload = malloc(room);
    if (!made || !preload)
        exit(1);
    snprintf(preload, room, "LD_PRELOAD=%s", library);
    memcpy(made, environ, count * sizeof *made);
    made[count] = preload;
    return made;
}

static double start(char **command, char **environment)
{
    posix_spawn_file_actions_t quiet;
    pid_t child;
    int status;

    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    uint64_t begin = bench_now_ns();
    int error = posix_spawnp(&child, command[0], &quiet, NULL, command, environment);
    if (error) {
        fprintf(stderr, "bench_start: %s: %s\n", command[0], strerror(error));
        exit(1);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    double taken = (double)(bench_now_ns() - begin);
    posix_spawn_file_actions_destroy(&quiet);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "bench_start: %s failed (status %d)\n", command[0], status);
        exit(1);
    }
    return taken;
}

int main(int argc, char **argv)
{
    static double taken[2][BENCH_BATCHES_MAX];

    if (argc < 4) {
        fprintf(stderr, "usage: bench_start ROUNDS LIBRARY COMMAND [ARGUMENT]...\n");
        return 2;
    }
    int rounds = bench_number(argv[1]);
    if (rounds > BENCH_BATCHES_MAX)
        rounds = BENCH_BATCHES_MAX;
    unsetenv("LD_PRELOAD");
    char **environments[2] = {environ, preloaded_environment(argv[2])};
    for (int way = 0; way < 2; way++)
        start(argv + 3, environments[way]); /* brings the files into the page cache */
    for (int i = 0; i < rounds; i++)
        for (int turn = 0; turn < 2; turn++) {
            int way = (i + turn) % 2; /* the order alternates, in case it matters */
            taken[way][i] = start(argv + 3, environments[way]);
        }
    for (int way = 0; way < 2; way++)
        qsort(taken[way], (size_t)rounds, sizeof taken[way][0], bench_compare);
    printf("{\"plain_ns\": %.0f, \"plain_low_ns\": %.0f, \"preloaded_ns\": %.0f, \"preloaded_low_ns\": %.0f}\n",
           taken[0][rounds / 2], taken[0][0], taken[1][rounds / 2], taken[1][0]);
    return 0;
}
