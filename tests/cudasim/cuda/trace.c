#include "trace.h"

#include <pthread.h>
#include <stdio.h>

#include "config.h"
#include "engine.h"
#include "kernels.h"

static FILE *file;
static pthread_once_t open_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t line_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long next_line; /* under line_lock */

static void open_trace(void)
{
    if (!cudasim_config()->trace)
        return;
    file = fopen(cudasim_config()->trace, "we");
    if (!file)
        fprintf(stderr, "cudasim: CUDASIM_TRACE=%s can't be written\n", cudasim_config()->trace);
}

static bool tracing(void)
{
    pthread_once(&open_once, open_trace);
    return file != NULL;
}

void cudasim_trace_call(const char *name, CUresult result, const char *within)
{
    if (!tracing())
        return;
    pthread_mutex_lock(&line_lock);
    fprintf(file, "%lu call %s %d%s%s\n", ++next_line, name, (int)result, within ? " in " : "", within ? within : "");
    pthread_mutex_unlock(&line_lock);
}

static void describe_kernel(const struct cudasim_operation *operation)
{
    fprintf(file, " kernel=%s", operation->kernel.entry->name);
    for (uint32_t i = 0; i < operation->kernel.entry->code->param_count; i++)
        if (operation->kernel.entry->code->params[i].size == sizeof(void *))
            fprintf(file, " p%u=%p", (unsigned int)i, *(void **)operation->kernel.params[i]);
}

static void describe(const struct cudasim_operation *operation)
{
    static const char *const directions[] = {"h2h", "h2d", "d2h", "d2d"};
    const struct cudasim_box *box = &operation->copy.box;
    switch (operation->kind) {
    case CUDASIM_OPERATION_KERNEL:
        describe_kernel(operation);
        break;
    case CUDASIM_OPERATION_COPY:
        fprintf(file, " copy=%s to=%#lx from=%#lx bytes=%zu", directions[operation->copy.direction],
                (unsigned long)operation->copy.to.address, (unsigned long)operation->copy.from.address,
                box->width * box->height * box->depth);
        break;
    case CUDASIM_OPERATION_FILL:
        fprintf(file, " fill=%#x to=%#lx bytes=%zu", (unsigned int)operation->fill.value,
                (unsigned long)operation->fill.to.address, operation->fill.box.width * operation->fill.box.height);
        break;
    case CUDASIM_OPERATION_EVENT_RECORD:
        fprintf(file, " record=%p", (void *)operation->event);
        break;
    case CUDASIM_OPERATION_EVENT_WAIT:
        fprintf(file, " wait=%p", (void *)operation->event);
        break;
    case CUDASIM_OPERATION_HOST_FUNCTION:
        fputs(" host-function", file);
        break;
    case CUDASIM_OPERATION_POOL_FREE:
        fputs(" pool-free", file);
        break;
    case CUDASIM_OPERATION_GRAPH_ALLOC:
        fputs(" graph-alloc", file);
        break;
    case CUDASIM_OPERATION_GRAPH_FREE:
        fputs(" graph-free", file);
        break;
    case CUDASIM_OPERATION_CONDITIONS_BEGIN:
        fputs(" conditions-begin", file);
        break;
    case CUDASIM_OPERATION_CONDITIONAL:
        fputs(" conditional", file);
        break;
    case CUDASIM_OPERATION_WRITE_VALUE:
    case CUDASIM_OPERATION_WAIT_VALUE:
        fprintf(file, " %s-word=%#lx value=%#lx", operation->kind == CUDASIM_OPERATION_WAIT_VALUE ? "wait" : "write",
                (unsigned long)operation->word.address, (unsigned long)operation->word.value);
        break;
    case CUDASIM_OPERATION_PREFETCH:
        fprintf(file, " prefetch=%#lx+%zu to=%d", (unsigned long)operation->prefetch.address, operation->prefetch.bytes,
                operation->prefetch.place);
        break;
    case CUDASIM_OPERATION_MARKER:
        fputs(" marker", file);
        break;
    }
    for (size_t i = 0; i < operation->dependency_count; i++)
        fprintf(file, " after=%lu:%lu", (unsigned long)operation->dependencies[i].stream->id,
                (unsigned long)operation->dependencies[i].number);
}

void cudasim_trace_operation(const char *what, const struct cudasim_operation *operation)
{
    if (!tracing())
        return;
    pthread_mutex_lock(&line_lock);
    fprintf(file, "%lu %s %lu:%lu %s", ++next_line, what, (unsigned long)operation->stream->id,
            (unsigned long)operation->number, operation->call ? operation->call : "-");
    describe(operation);
    fputc('\n', file);
    pthread_mutex_unlock(&line_lock);
}

void cudasim_trace_before_fork(void)
{
    pthread_mutex_lock(&line_lock);
    if (file)
        fflush(file); /* otherwise the child would write the parent's buffered lines again */
}

void cudasim_trace_after_fork(bool in_child)
{
    if (!in_child) {
        pthread_mutex_unlock(&line_lock);
        return;
    }
    file = NULL;
    pthread_mutex_init(&line_lock, NULL);
}

void cudasim_trace_flush(void)
{
    /* A thread that was stopped inside a line must not stop the end of the process. */
    if (!tracing() || pthread_mutex_trylock(&line_lock))
        return;
    fflush(file);
    pthread_mutex_unlock(&line_lock);
}
