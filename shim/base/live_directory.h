/*
 * The directories of live pages, and the processes that the pages belong to. A page is the file
 * PID-NAMESPACE in a directory of its user: $XDG_RUNTIME_DIR/penstock, or else
 * /dev/shm/penstock-UID. Both are memory. The kernel would write a file on a disk back now and
 * then, and the trainer would wait for that. The directory is made with mode 0700. A directory is
 * not used if it is a link, belongs to another user, or may be entered by others.
 *
 * Threads: any; no state.
 */
#ifndef PS_LIVE_DIRECTORY_H
#define PS_LIVE_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/live_page.h"

#define PS_LIVE_DIRECTORIES 2u
#define PS_LIVE_PATH_BYTES 4096
#define PS_LIVE_NAME_BYTES 48

/*
 * Opens one of the directories; with `make` it is made if it isn't there. Returns the descriptor,
 * for the caller to close, and the path. -ENOENT: it doesn't exist. -EPERM: it can't be trusted.
 * -ENOTSUP: it is not memory (only with `make`). Other errors are -errno too.
 */
int ps_live_directory_open(unsigned which, bool make, char path[PS_LIVE_PATH_BYTES]);

/*
 * Opens the first of the directories that serves, as above, and makes it if need be. Returns the
 * error of the last one if none serves.
 */
int ps_live_directory_open_any(char path[PS_LIVE_PATH_BYTES]);

/*
 * Reads the identity of a process of this pid namespace. Returns 0, or -ESRCH: it doesn't exist, or
 * it has ended and its parent has not waited for it.
 */
int ps_live_identity_of(pid_t pid, struct ps_live_identity *out);

/* Says whether that process of this pid namespace lives and still is the same program. */
bool ps_live_identity_lives(const struct ps_live_identity *of);

/* Writes the file name of that process's page. */
void ps_live_name(char name[PS_LIVE_NAME_BYTES], const struct ps_live_identity *of);

/*
 * The notes of ranks to each other (rank_exchange.h) lie here too. Their names begin with
 * PS_LIVE_NOTE and PID-NAMESPACE, and each file begins with this structure.
 */
#define PS_LIVE_NOTE "told-"
#define PS_LIVE_NOTE_MAGIC "penpeer1"
struct ps_live_note {
    char magic[8];
    struct ps_live_identity identity;
};

enum ps_live_found {
    PS_LIVE_FOUND_LIVES,
    PS_LIVE_FOUND_LEFT_OVER,     /* its process is gone, or has become another program */
    PS_LIVE_FOUND_ELSEWHERE,     /* its process is in another pid namespace; its state is unknown */
    PS_LIVE_FOUND_OTHER_VERSION, /* it lives; of `header` only the version counts */
    PS_LIVE_FOUND_NO_PAGE,       /* the file is no page, or a page that is being made */
};

/*
 * Classifies the file of that name. For a page that lives, *header is filled, and *fd is open for
 * the caller to close. Otherwise *fd is -1.
 */
enum ps_live_found ps_live_look_at(int directory, const char *name, struct ps_live_header *header, int *fd);

/* Receives one page. `fd` and `header` live until it returns. */
typedef void (*ps_live_page_fn)(enum ps_live_found found, const char *name, int fd, const struct ps_live_header *header,
                                void *ctx);

/*
 * Calls `page` (may be NULL) for each page of a directory in turn. Pages and notes that are left
 * over are removed, and `page` is not called for them.
 */
void ps_live_each(int directory, ps_live_page_fn page, void *ctx);

#endif
