/*
 * The training loop of the sample trainers: parameters, batches, workers and their threads,
 * gradient sums, Adam, output.
 *
 * Standard output depends on the sizes, the seed and --halves alone:
 *     step N loss L gradients H      H: a hash of the bytes of all gradients
 *     eval N loss L
 *     parameters H                   at the end
 */
#ifndef PENSTOCK_SAMPLES_TRAIN_H
#define PENSTOCK_SAMPLES_TRAIN_H

#include <math.h>
#include <pthread.h>

#include "ops.h"

#define LEARNING_RATE 3e-3f
#define MAX_WORKERS 2

/* A trainer's description of its model. */
struct model {
    struct options defaults;
    /* Ends the program with status 2 if the sizes don't fit together. */
    void (*check_options)(const struct options *options);
    void (*declare)(const struct options *options, struct parameter_list *parameters);
    size_t (*input_bytes)(const struct options *options); /* of the whole batch */
    size_t (*target_bytes)(const struct options *options);
    void (*fill_batch)(const struct options *options, void *input, void *target);
    struct activations *(*new_activations)(const struct options *options);
    void (*free_activations)(struct activations *activations);
    /*
     * Both issue the worker's share of a step. After a forward pass with worker->training,
     * worker->activations holds the tensors for backward.
     */
    void (*forward)(struct worker *worker);
    void (*backward)(struct worker *worker);
    /*
     * Returns the loss of the first step's batch, computed by plain loops in double precision that
     * share nothing with the kernels.
     */
    double (*reference_loss)(const struct options *options, const double *const *parameters, const void *input,
                             const void *target);
};

struct step_result {
    double *loss;            /* pinned; one for each worker */
    unsigned char *gradient; /* pinned; all gradients, one after the other */
};

struct trainer {
    const struct model *model;
    const struct options *options;
    struct parameter_list parameters;
    size_t parameter_bytes;
    void *input;  /* pinned */
    void *target; /* pinned */
    struct worker worker[MAX_WORKERS];
    cudaEvent_t updated; /* recorded after the last update, or at the end of a step that omits it */
    struct step_result *result;
    uint64_t updates;
};

static inline void parameter_add(struct parameter_list *list, size_t count, float offset, float deviation,
                                 const char *format, unsigned layer)
{
    REQUIRE(list->count < MAX_PARAMETERS, "more than %d parameters", MAX_PARAMETERS);

    struct parameter *parameter = &list->entry[list->count++];

    snprintf(parameter->name, sizeof(parameter->name), format, layer);
    parameter->count = count;
    parameter->offset = offset;
    parameter->deviation = deviation;
}

static inline void *pinned_new(size_t bytes)
{
    void *data = nullptr;

    CHECK(cudaMallocHost(&data, bytes));
    memset(data, 0, bytes);
    return data;
}

static inline void make_parameters(struct trainer *trainer)
{
    struct parameter_list *list = &trainer->parameters;

    trainer->model->declare(trainer->options, list);
    for (size_t p = 0; p < list->count; p++) {
        struct parameter *parameter = &list->entry[p];
        const size_t bytes = parameter->count * sizeof(float);
        float *host = static_cast<float *>(malloc(bytes));

        REQUIRE(host != nullptr, "no host memory");
        for (size_t i = 0; i < parameter->count; i++)
            host[i] = parameter->offset + parameter->deviation * uniform_at(trainer->options->seed * 1000003 + p, i);
        parameter->value = allocate_forever(parameter->count);
        parameter->moment1 = allocate_forever(parameter->count);
        parameter->moment2 = allocate_forever(parameter->count);
        CHECK(cudaMemcpy(parameter->value, host, bytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemset(parameter->moment1, 0, bytes));
        CHECK(cudaMemset(parameter->moment2, 0, bytes));
        free(host);
        trainer->parameter_bytes += bytes;
    }
}

static inline void make_worker(struct trainer *trainer, struct worker *worker)
{
    worker->options = trainer->options;
    worker->parameters = &trainer->parameters;
    worker->host_input = trainer->input;
    worker->host_target = trainer->target;
    worker->activations = trainer->model->new_activations(trainer->options);
    CHECK(cudaStreamCreateWithFlags(&worker->main, cudaStreamNonBlocking));
    worker->side = worker->main;
    if (trainer->options->streams == 2)
        CHECK(cudaStreamCreateWithFlags(&worker->side, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&worker->main_reached, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&worker->side_reached, cudaEventDisableTiming));
    for (size_t p = 0; p < trainer->parameters.count; p++)
        worker->gradient[p] = allocate_forever(trainer->parameters.entry[p].count);
}

/* Returns the number of results that may be on their way to the host at once. */
static inline size_t result_count(const struct options *options)
{
    return options->print_at_end && options->steps > 0 ? options->steps : 1;
}

static inline void make_trainer(struct trainer *trainer, const struct model *model, const struct options *options)
{
    const size_t results = result_count(options);

    trainer->model = model;
    trainer->options = options;
    trainer->input = pinned_new(model->input_bytes(options));
    trainer->target = pinned_new(model->target_bytes(options));
    model->fill_batch(options, trainer->input, trainer->target);
    make_parameters(trainer);
    REQUIRE(trainer->parameter_bytes <= (1ull << 30) / results,
            "--print=end would keep more than 1 GiB of gradients on the host");
    for (size_t i = 0; i < options->halves; i++)
        make_worker(trainer, &trainer->worker[i]);
    CHECK(cudaEventCreateWithFlags(&trainer->updated, cudaEventDisableTiming));
    trainer->result = static_cast<struct step_result *>(calloc(results, sizeof(*trainer->result)));
    REQUIRE(trainer->result != nullptr, "no host memory");
    for (size_t i = 0; i < results; i++) {
        trainer->result[i].loss = static_cast<double *>(pinned_new(MAX_WORKERS * sizeof(double)));
        trainer->result[i].gradient = static_cast<unsigned char *>(pinned_new(trainer->parameter_bytes));
    }
    /*
     * The synchronous copies and memsets above ran on the default stream, for which the workers'
     * streams don't wait.
     */
    CHECK(cudaDeviceSynchronize());
}

struct worker_job {
    struct trainer *trainer;
    struct worker *worker;
};

static void *backward_thread(void *argument)
{
    const struct worker_job *job = static_cast<const struct worker_job *>(argument);

    job->trainer->model->backward(job->worker);
    return nullptr;
}

/*
 * Issues a worker's part of a step on the calling thread. With --threads=2, backward runs on
 * another thread.
 */
static void *worker_thread(void *argument)
{
    struct worker_job *job = static_cast<struct worker_job *>(argument);
    struct worker *worker = job->worker;
    const struct parameter_list *parameters = worker->parameters;

    /*
     * This step reads the parameters and writes the gradients, so it comes after the last update.
     */
    CHECK(cudaStreamWaitEvent(worker->main, job->trainer->updated, 0));
    if (worker->training)
        for (size_t p = 0; p < parameters->count; p++)
            CHECK(cudaMemsetAsync(worker->gradient[p], 0, parameters->entry[p].count * sizeof(float), worker->main));
    job->trainer->model->forward(worker);
    if (worker->training) {
        if (worker->options->threads == 2) {
            pthread_t thread;

            REQUIRE(pthread_create(&thread, nullptr, backward_thread, job) == 0, "no thread for backward");
            pthread_join(thread, nullptr);
        } else {
            job->trainer->model->backward(worker);
        }
    }
    main_follows_side(worker);
    return nullptr;
}

/*
 * Issues forward (and backward) of all workers. Afterwards the first worker's main stream follows
 * all of it.
 */
static inline void run_workers(struct trainer *trainer, uint64_t step, bool training, struct step_result *result)
{
    const struct options *options = trainer->options;
    const size_t fewer = options->shapes > 1 ? step % options->shapes * options->batch / (2 * options->shapes) : 0;
    const size_t batch = options->batch - fewer;
    struct worker_job job[MAX_WORKERS];
    pthread_t thread[MAX_WORKERS];

    for (size_t i = 0; i < options->halves; i++) {
        struct worker *worker = &trainer->worker[i];

        worker->step = step;
        worker->training = training;
        worker->batch = batch;
        worker->first = i * batch / options->halves;
        worker->samples = (i + 1) * batch / options->halves - worker->first;
        worker->host_loss = &result->loss[i];
        job[i] = {trainer, worker};
    }
    for (size_t i = 1; i < options->halves; i++)
        REQUIRE(pthread_create(&thread[i], nullptr, worker_thread, &job[i]) == 0, "no thread for a half");
    worker_thread(&job[0]);
    for (size_t i = 1; i < options->halves; i++) {
        pthread_join(thread[i], nullptr);
        CHECK(cudaEventRecord(trainer->worker[i].main_reached, trainer->worker[i].main));
        CHECK(cudaStreamWaitEvent(trainer->worker[0].main, trainer->worker[i].main_reached, 0));
    }
}

/*
 * Sums the workers' gradients, copies the sums to the host, and updates the parameters on the side
 * stream.
 */
static inline void finish_step(struct trainer *trainer, uint64_t step, struct step_result *result)
{
    const struct options *options = trainer->options;
    const struct worker *worker = &trainer->worker[0];
    const bool update = !options->gradcheck && (options->skip_every == 0 || (step + 1) % options->skip_every != 0);
    size_t offset = 0;

    range_begin(worker, "optimizer");
    for (size_t p = 0; p < trainer->parameters.count; p++) {
        const size_t count = trainer->parameters.entry[p].count;

        for (size_t i = 1; i < options->halves; i++)
            LAUNCH(worker->main, count, accumulate, worker->gradient[p], trainer->worker[i].gradient[p], count);
        CHECK(cudaMemcpyAsync(result->gradient + offset, worker->gradient[p], count * sizeof(float),
                              cudaMemcpyDeviceToHost, worker->main));
        offset += count * sizeof(float);
    }
    side_follows_main(worker);
    if (update) {
        trainer->updates++;

        const double t = static_cast<double>(trainer->updates);
        const float correction1 = static_cast<float>(1.0 / (1.0 - pow(0.9, t)));
        const float correction2 = static_cast<float>(1.0 / (1.0 - pow(0.99, t)));

        for (size_t p = 0; p < trainer->parameters.count; p++) {
            const struct parameter *parameter = &trainer->parameters.entry[p];

            LAUNCH(worker->side, parameter->count, adam, parameter->value, parameter->moment1, parameter->moment2,
                   worker->gradient[p], LEARNING_RATE, correction1, correction2, parameter->count);
        }
    }
    CHECK(cudaEventRecord(trainer->updated, worker->side));
    range_end(worker);
}

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *next = static_cast<const unsigned char *>(data);

    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), next += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, next, sizeof(word));
        hash = mix_bits(hash ^ word);
    }
    for (; bytes > 0; bytes--, next++)
        hash = mix_bits(hash ^ *next);
    return hash;
}

static inline double loss_of(const struct trainer *trainer, const struct step_result *result)
{
    double loss = 0.0;

    for (size_t i = 0; i < trainer->options->halves; i++)
        loss += result->loss[i];
    return loss;
}

/*
 * No loss or gradient of these models comes near this value. Bytes that were never written usually
 * do.
 */
#define ABSURD 1e6

static inline void verify_step(const struct trainer *trainer, uint64_t step, const struct step_result *result)
{
    const float *value = reinterpret_cast<const float *>(result->gradient);

    REQUIRE(fabs(loss_of(trainer, result)) < ABSURD, "step %llu: the loss is %g", static_cast<unsigned long long>(step),
            loss_of(trainer, result));
    for (size_t p = 0; p < trainer->parameters.count; p++)
        for (size_t i = 0; i < trainer->parameters.entry[p].count; i++, value++)
            REQUIRE(fabs(static_cast<double>(*value)) < ABSURD, "step %llu: gradient %zu of %s is %g",
                    static_cast<unsigned long long>(step), i, trainer->parameters.entry[p].name,
                    static_cast<double>(*value));
}

static inline void print_step(const struct trainer *trainer, uint64_t step, const struct step_result *result)
{
    printf("step %llu loss %.9g gradients %016llx\n", static_cast<unsigned long long>(step), loss_of(trainer, result),
           static_cast<unsigned long long>(hash_bytes(0, result->gradient, trainer->parameter_bytes)));
    if (trainer->options->verify)
        verify_step(trainer, step, result);
}

/* Runs a forward pass alone and prints its loss at once. */
static inline void evaluate(struct trainer *trainer, uint64_t step)
{
    struct step_result result = {static_cast<double *>(pinned_new(MAX_WORKERS * sizeof(double))), nullptr};

    run_workers(trainer, step, false, &result);
    CHECK(cudaStreamSynchronize(trainer->worker[0].main));
    printf("eval %llu loss %.9g\n", static_cast<unsigned long long>(step), loss_of(trainer, &result));
    CHECK(cudaFreeHost(result.loss));
}

static inline void train(struct trainer *trainer)
{
    const struct options *options = trainer->options;

    for (uint64_t step = 0; step < options->steps; step++) {
        struct step_result *result = &trainer->result[options->print_at_end ? step : 0];

        run_workers(trainer, step, true, result);
        finish_step(trainer, step, result);
        if (!options->print_at_end) {
            CHECK(cudaStreamSynchronize(trainer->worker[0].main));
            print_step(trainer, step, result);
        }
        if (options->eval_every > 0 && (step + 1) % options->eval_every == 0)
            evaluate(trainer, step);
    }
    CHECK(cudaDeviceSynchronize());
    for (uint64_t step = 0; options->print_at_end && step < options->steps; step++)
        print_step(trainer, step, &trainer->result[step]);
}

/* Returns a new host copy of a parameter's values. */
static inline float *download_parameter(const struct parameter *parameter)
{
    float *host = static_cast<float *>(malloc(parameter->count * sizeof(float)));

    REQUIRE(host != nullptr, "no host memory");
    CHECK(cudaMemcpy(host, parameter->value, parameter->count * sizeof(float), cudaMemcpyDeviceToHost));
    return host;
}

static inline void print_parameters(const struct trainer *trainer)
{
    uint64_t hash = 0;

    for (size_t p = 0; p < trainer->parameters.count; p++) {
        float *host = download_parameter(&trainer->parameters.entry[p]);

        hash = hash_bytes(hash, host, trainer->parameters.entry[p].count * sizeof(float));
        free(host);
    }
    printf("parameters %016llx\n", static_cast<unsigned long long>(hash));
}

static inline void free_worker(const struct trainer *trainer, struct worker *worker)
{
    for (size_t p = 0; p < trainer->parameters.count; p++)
        CHECK(cudaFree(worker->gradient[p]));
    CHECK(cudaEventDestroy(worker->main_reached));
    CHECK(cudaEventDestroy(worker->side_reached));
    if (worker->side != worker->main)
        CHECK(cudaStreamDestroy(worker->side));
    CHECK(cudaStreamDestroy(worker->main));
    trainer->model->free_activations(worker->activations);
}

/* Frees everything. So a ledger shows afterwards only memory that was lost elsewhere. */
static inline void free_trainer(struct trainer *trainer)
{
    CHECK(cudaDeviceSynchronize());
    for (size_t p = 0; p < trainer->parameters.count; p++) {
        CHECK(cudaFree(trainer->parameters.entry[p].value));
        CHECK(cudaFree(trainer->parameters.entry[p].moment1));
        CHECK(cudaFree(trainer->parameters.entry[p].moment2));
    }
    for (size_t i = 0; i < trainer->options->halves; i++)
        free_worker(trainer, &trainer->worker[i]);
    CHECK(cudaEventDestroy(trainer->updated));
    for (size_t i = 0; i < result_count(trainer->options); i++) {
        CHECK(cudaFreeHost(trainer->result[i].loss));
        CHECK(cudaFreeHost(trainer->result[i].gradient));
    }
    free(trainer->result);
    CHECK(cudaFreeHost(trainer->input));
    CHECK(cudaFreeHost(trainer->target));
}

#include "gradcheck.h"

static inline int train_main(const struct model *model, int argc, char **argv)
{
    static struct trainer trainer;
    struct options options = model->defaults;
    int status = 0;

    parse_options(&options, argc, argv);
    if (options.batch < 2 * options.halves) {
        fprintf(stderr, "%s: a batch of %llu can't be shared out\n", argv[0],
                static_cast<unsigned long long>(options.batch));
        return 2;
    }
    model->check_options(&options);
    make_trainer(&trainer, model, &options);
    if (options.gradcheck) {
        status = check_gradients(&trainer);
    } else {
        train(&trainer);
        print_parameters(&trainer);
    }
    free_trainer(&trainer);
    if (options.memory)
        fprintf(stderr, "allocated at the peak %zu bytes, of which parameters %zu\n", memory_use.peak.load(),
                trainer.parameter_bytes * (3 + options.halves));
    return status;
}

#endif
